"""TensorFlow, set up for one version of Keras, and what Ringside uses of its private parts.

A process runs one Keras: legacy Keras (tf-keras) if TF_USE_LEGACY_KERAS is 1, Keras 3 if it is 0.
Whoever starts a process sets it before TensorFlow is imported
(`ringside_core/specs/keras_version.py`).
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from ringside_core.memory import keep_freed_memory
from ringside_core.specs.keras_version import SWITCH, chosen_version, is_as_shipped

VERSION = chosen_version(imported="tensorflow" in sys.modules)
AS_SHIPPED = is_as_shipped()  # Keras 3 without Ringside's changes
os.environ[SWITCH] = "1" if VERSION == 2 else "0"
os.environ["KERAS_BACKEND"] = "tensorflow"
# Remarks on oneDNN, CPU flags and absent GPUs; real failures surface as exceptions.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

_NOISE = (
    b"Unable to register cu",  # TensorFlow 2.18
    b"All log messages before absl::InitializeLog",
    # TensorFlow 2.21 says both at every log level, since they come before it reads the level.
    b" port.cc:",
    b" cudart_stub.cc:",
)


@contextlib.contextmanager
def _without_noise() -> Iterator[None]:
    """Pass on what C++ writes to standard error, but for lines that every start on a CPU writes.

    They come before TensorFlow's logger can be told anything; four ranks would write sixteen lines
    with "E0000" above the first epoch.
    """
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

    # Private parts that Ringside answers or asks; tests/training/test_dataset.py and
    # test_programs.py see that they are still what they were.
    from tensorflow.python.autograph.core import ag_ctx
    from tensorflow.python.autograph.impl import api as autograph
    from tensorflow.python.eager import context
    from tensorflow.python.ops import (
        gen_random_ops,
        gen_stateful_random_ops,
        gen_stateless_random_ops_v2,
    )
    from tensorflow.python.ops.parallel_for import control_flow_ops

# Keras' remarks on slow callbacks and the like; Ringside's own findings are in the records.
tf.get_logger().setLevel("ERROR")

__all__ = [
    "AS_SHIPPED",
    "VERSION",
    "ag_ctx",
    "autograph",
    "control_flow_ops",
    "flat",
    "functions_in_python",
    "gen_random_ops",
    "gen_stateful_random_ops",
    "gen_stateless_random_ops_v2",
    "global_seed",
    "python_of",
    "tf",
    "with_rank",
]


@contextlib.contextmanager
def functions_in_python() -> Iterator[None]:
    """Within this block a user's own tf.function runs in Python, so that what it calls is seen."""
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


def global_seed() -> Any:
    """TensorFlow's global seed; None: nobody has set it."""
    return context.global_seed()


def flat(value: Any) -> list[Any]:
    """What lists, tuples and dicts hold, at any depth."""
    if isinstance(value, dict):
        value = list(value.values())
    return (
        [one for part in value for one in flat(part)]
        if isinstance(value, list | tuple)
        else [value]
    )


def python_of(function: Any) -> Any:
    """A function as Python. What a tf.function has traced draws by itself, and returns copies."""
    return getattr(function, "python_function", function)


def with_rank(tensor: Any, rank: int) -> Any:
    """A tensor with axes of size 1 after its own, as many as it lacks."""
    return tensor[(..., *[tf.newaxis] * (rank - tensor.shape.rank))]
