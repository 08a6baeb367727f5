"""TensorFlow, set up for one version of Keras, and what Ringside uses of its private parts.

A process runs one Keras: legacy Keras (tf-keras) if TF_USE_LEGACY_KERAS is 1, Keras 3 if it is 0.
The variable must be set before TensorFlow is imported (`ringside_core/specs/keras_version.py`).
"""

import contextlib
import os
import re
import sys
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ringside_core.memory import keep_freed_memory
from ringside_core.seeds import SCRIPT_SEED
from ringside_core.specs.keras_version import SWITCH, chosen_version

VERSION = chosen_version(imported="tensorflow" in sys.modules)
os.environ[SWITCH] = "1" if VERSION == 2 else "0"
os.environ["KERAS_BACKEND"] = "tensorflow"
# Remarks on oneDNN, CPU flags and absent GPUs; real failures surface as exceptions.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

_NOISE = (
    b"All log messages before absl::InitializeLog",
    # TensorFlow 2.21 says both at every log level, since they come before it reads the level.
    b" port.cc:",
    b" cudart_stub.cc:",
)


@contextlib.contextmanager
def _without_noise() -> Iterator[None]:
    """Pass on what C++ writes to standard error, but for lines that every start on a CPU writes."""
    # They come before TensorFlow's logger can be set; four ranks would write sixteen
    # lines with "E0000" above the first epoch.
    with tempfile.TemporaryFile() as buffer:
        saved = os.dup(2)
        os.dup2(buffer.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            buffer.seek(0)
            for line in buffer:
                if not any(noise in line for noise in _NOISE):
                    os.write(2, line)


keep_freed_memory()
with _without_noise():
    import tensorflow as tf

    tf.keras.backend  # noqa: B018  # TensorFlow reads the switch when it is first asked for Keras

    from tensorflow.python.eager import context  # private: nothing public says the global seed

# Keras' remarks on slow callbacks and the like; Ringside's own findings are in the records.
tf.get_logger().setLevel("ERROR")

__all__ = ["VERSION", "Event", "events_of", "is_seeded", "note_bytes", "tf"]


def is_seeded() -> bool:
    """Whether an author has set TensorFlow's global seed."""
    return context.global_seed() not in (None, SCRIPT_SEED)


def note_bytes(operations: re.Pattern[str]) -> list[dict[str, int | None]]:
    """Note the bytes of the outputs of operations of these types, from now on.

    Returns:
        It is filled while graphs are made: for each graph bytes by name. None: not known.
    """
    # Private, TensorFlow 2.21: neither the profiler nor a finished function says a shape.
    upstream = tf.Graph._create_op_internal
    graphs: weakref.WeakKeyDictionary[Any, dict[str, int | None]] = weakref.WeakKeyDictionary()
    found: list[dict[str, int | None]] = []

    def create(self: Any, op_type: str, *args: Any, **kwargs: Any) -> Any:
        made = upstream(self, op_type, *args, **kwargs)
        if operations.fullmatch(op_type):
            size: int | None = 0
            for output in made.outputs:
                if size is None or not output.shape.is_fully_defined():
                    size = None
                else:
                    size += output.dtype.size * output.shape.num_elements()
            if self not in graphs:
                graphs[self] = {}
                found.append(graphs[self])
            graphs[self][made.name] = size
        return made

    tf.Graph._create_op_internal = create
    return found


class Event(NamedTuple):
    """What TensorFlow's profiler has seen on a thread; times in ns, `begin_ns` since 1970."""

    name: str
    thread: str
    begin_ns: int
    ns: int
    stats: dict[str, Any]


def events_of(folder: Path) -> Iterator[Event]:
    """What a profile of `tf.profiler.experimental` in a folder has of processors."""
    # Private, TensorFlow 2.21: the profiler writes this and nothing else.
    from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

    for file in folder.glob("**/*.xplane.pb"):
        space = XSpace.FromString(file.read_bytes())
        began = next(
            stat.uint64_value
            for plane in space.planes
            for stat in plane.stats
            if plane.stat_metadata[stat.metadata_id].name == "profile_start_time"
        )
        for plane in space.planes:
            names, stats = plane.event_metadata, plane.stat_metadata
            for line in plane.lines:
                for event in line.events:
                    yield Event(
                        names[event.metadata_id].name,
                        line.name,
                        began + line.timestamp_ns + event.offset_ps // 1000,
                        event.duration_ps // 1000,
                        {stats[x.metadata_id].name: _value(x, stats) for x in event.stats},
                    )


def _value(stat: Any, names: Any) -> Any:
    kind = stat.WhichOneof("value")
    return names[stat.ref_value].name if kind == "ref_value" else getattr(stat, kind)
