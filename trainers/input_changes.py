"""A change of how an author's data are read, in runs that show what it would gain.

The program runs as it is. Where it calls `tf.data` itself, the call has another default; or the
data that it gives `fit` get one more part. No other run is touched.
"""

import inspect
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

from ringside_core.keras import tf
from ringside_core.specs import RefusalError
from ringside_core.specs.input_change import CHANGES, NEEDS
from trainers.fit_call import FitCall
from trainers.reading import rows_of_arrays

OWN = ("tensorflow", "keras", "tf_keras", "ringside", "ringside_core", "trainers", "backends")
AUTOGRAPH = "tensorflow.python.autograph."
_altered: list[str] = []  # calls of the author's with another default
FILES = ("TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset")


def change_calls(change: str | None) -> None:
    """Give what a program calls of `tf.data` other defaults, in this process and for good."""
    together = {"num_parallel_calls": tf.data.AUTOTUNE}
    if change in ("parallel_map", "unordered", "parallel_map_fixed"):
        if change == "parallel_map_fixed":
            together["num_parallel_calls"] = len(os.sched_getaffinity(0))
        if change == "unordered":
            together["deterministic"] = False
        _with_defaults(tf.data.Dataset, "map", together)
    elif change == "interleave":
        _with_defaults(tf.data.Dataset, "interleave", together)
        for name in FILES:
            _with_defaults(
                getattr(tf.data, name), "__init__", {"num_parallel_reads": tf.data.AUTOTUNE}
            )
    elif change == "batch_first":
        _map_batches()


def _with_defaults(of: Any, name: str, values: dict[str, Any]) -> None:
    """Arguments that its author leaves out, or leaves to tf.data, have these values."""
    upstream = getattr(of, name)
    signature = inspect.signature(upstream)

    def changed(*args: Any, **kwargs: Any) -> Any:
        if _is_the_authors():
            given = signature.bind(*args, **kwargs)
            for argument, value in values.items():
                if given.arguments.get(argument) is None:
                    given.arguments[argument] = value
                    _altered.append(name)
            args, kwargs = given.args, given.kwargs
        return upstream(*args, **kwargs)

    setattr(of, name, changed)


def _is_the_authors() -> bool:
    """Whether the caller of the caller is neither TensorFlow, Keras nor Ringside."""
    frame: Any = sys._getframe(2)
    module = frame.f_globals.get("__name__", "")
    while module.startswith(AUTOGRAPH):  # it calls what stands in a function for `interleave`
        frame = frame.f_back
        module = frame.f_globals.get("__name__", "")
    return module.partition(".")[0] not in OWN


def _map_batches() -> None:
    """What is mapped row by row and then made batches of is made batches of, and then mapped."""
    # By id of what was mapped, which is kept, so that no id is used twice.
    rows_of: dict[int, tuple[Any, Any, Callable[[Any], Any]]] = {}
    upstream_map, upstream_batch = tf.data.Dataset.map, tf.data.Dataset.batch

    def mapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = upstream_map(self, *args, **kwargs)
        if _is_the_authors():
            rows_of[id(made)] = made, self, lambda data: upstream_map(data, *args, **kwargs)
        return made

    def batched(self: Any, *args: Any, **kwargs: Any) -> Any:
        if id(self) in rows_of and _is_the_authors():
            _, rows, again = rows_of[id(self)]
            _altered.append("batch")
            return again(upstream_batch(rows, *args, **kwargs))
        return upstream_batch(self, *args, **kwargs)

    tf.data.Dataset.map, tf.data.Dataset.batch = mapped, batched


def changed(call: FitCall, change: str | None) -> FitCall:
    """The fit with its data changed; other changes were made where the program called `tf.data`.

    Args:
        call: of the author.
        change: its name. What it puts on disk is in the temporary folder of this process.

    Raises:
        RefusalError: the data are not of the kind that the change needs.
    """
    if change is None:
        return call
    x: Any = call.arguments.get("x")
    needs = CHANGES[change].needs
    arrays = rows_of_arrays(call.arguments) is not None
    if not (arrays if needs == "arrays" else isinstance(x, tf.data.Dataset)):
        raise RefusalError(
            f"The input change {change} needs {NEEDS[needs]}.",
            received=type(x).__name__,
            advice="Leave it out. ringside input tries those that the data can have.",
        )
    if change == "dataset":
        if call.arguments.get("validation_split"):
            raise RefusalError(
                "Keras splits no tf.data.Dataset for validation.",
                received="validation_split",
                advice="Give validation_data.",
            )
        rows = tf.data.Dataset.from_tensor_slices(call.arrays)
        data = rows.batch(call.global_batch)
        return call.given(x=data, y=None, sample_weight=None, batch_size=None, shuffle=None)
    if change == "arrays":
        return _as_arrays(call)
    if change == "prefetch":
        return call.given(x=x.prefetch(tf.data.AUTOTUNE))
    ways: dict[str, Callable[[Any], Any]] = {
        "cache": lambda data: data.cache(),
        "cache_file": lambda data: data.cache(f"{tempfile.mkdtemp()}/cache"),
        "snapshot": lambda data: data.snapshot(tempfile.mkdtemp()),
    }
    if change in ways:
        kept = ways[change](_one_epoch(call))
        return call.given(x=kept.repeat() if call.endless else kept)
    if not _altered:
        raise RefusalError(
            f"The input change {change} must change a call of the program.",
            received=f"no call that it could change: it needs {NEEDS[needs]}",
            advice="What has a number of its own, and what a library calls, stays as it is.",
        )
    return call


def _one_epoch(call: FitCall) -> Any:
    """The data of a call; of data without an end those of an epoch, as all will be kept."""
    x = call.arguments["x"]
    return x.take(call.steps_per_epoch) if call.endless else x


def _as_arrays(call: FitCall) -> FitCall:
    """The rows of an epoch in arrays, in their order."""
    batches = list(_one_epoch(call).as_numpy_iterator())
    whole = tf.nest.map_structure(lambda *parts: np.concatenate(parts), *batches)
    size = len(tf.nest.flatten(batches[0])[0])
    parts = whole if isinstance(whole, tuple) else (whole,)
    named = dict(zip(("x", "y", "sample_weight"), parts, strict=False))
    return call.given(**named, batch_size=size, shuffle=False, steps_per_epoch=None)
