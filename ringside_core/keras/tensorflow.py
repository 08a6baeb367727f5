"""TensorFlow, set up for one version of Keras, and what Ringside uses of its private parts.

A process runs one Keras: legacy Keras (tf-keras) if TF_USE_LEGACY_KERAS is 1, Keras 3 if it is 0.
Whoever starts a process sets it before TensorFlow is imported
(`ringside_core/specs/keras_version.py`).
"""

import contextlib
import functools
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from ringside_core.memory import keep_freed_memory
from ringside_core.seeds import SCRIPT_SEED
from ringside_core.specs.keras_version import SWITCH, chosen_version, is_as_shipped

VERSION = chosen_version(imported="tensorflow" in sys.modules)
AS_SHIPPED = is_as_shipped()  # Keras 3 without Ringside's changes
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
    from tensorflow.python.framework import random_seed
    from tensorflow.python.ops import (
        gen_ctc_ops,
        gen_random_ops,
        gen_stateful_random_ops,
        gen_stateless_random_ops_v2,
        nn_impl_distribute,
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
    "gen_ctc_ops",
    "gen_random_ops",
    "gen_stateful_random_ops",
    "gen_stateless_random_ops_v2",
    "global_seed",
    "has_own_step",
    "has_own_test_step",
    "is_of_keras",
    "is_seeded",
    "let_averages_be_of_one_replica",
    "own_of_step",
    "python_of",
    "random_seed",
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


def has_own_step(model: Any) -> bool:
    """Whether the model's author wrote its training step, or what Keras' own step calls."""
    return bool(own_of_step(model))


def has_own_test_step(model: Any) -> bool:
    """Whether the model's author wrote its step of an evaluation, or what Keras' own step calls."""
    return bool(own_of_step(model, "test_step"))


def own_of_step(model: Any, step: str = "train_step") -> list[str]:
    """The methods of a step that are the model's own: the step itself first."""
    kind, keras = type(model), tf.keras.Model
    return [n for n in (step, *_COMPUTES) if getattr(kind, n) is not getattr(keras, n)]


# They need not look at weights, so padding might count.
_COMPUTES = ("compute_loss", "compute_metrics")


def is_seeded() -> bool:
    """Whether an author has set TensorFlow's global seed."""
    return global_seed() not in (None, SCRIPT_SEED)


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


def is_of_keras(one: Any) -> bool:
    """Whether a class, a function or a method comes with Keras, and is not an author's own."""
    return str(one.__module__).split(".")[0] in ("keras", "tf_keras")


def rotations(radians: Any, height: Any, width: Any) -> Any:
    """Rotations of images about their centres, as `ImageProjectiveTransformV3` takes them.

    In the place of Keras' own in float64, which mix in float32 and fail.

    Args:
        radians: the angle of each image, [batch].
        height: of the images, in pixels.
        width: likewise.

    Returns:
        [batch, 8], in float32: the operation takes nothing else.
    """
    cos, sin = tf.cos(radians), tf.sin(radians)
    x, y = (tf.cast(size - 1, radians.dtype) / 2 for size in (width, height))
    rows = [cos, -sin, x - x * cos + y * sin, sin, cos, y - x * sin - y * cos]
    found = tf.stack([*rows, tf.zeros_like(cos), tf.zeros_like(cos)], axis=1)
    return tf.cast(found, tf.float32)


def with_rank(tensor: Any, rank: int) -> Any:
    """A tensor with axes of size 1 after its own, as many as it lacks."""
    return tensor[(..., *[tf.newaxis] * (rank - tensor.shape.rank))]


def let_averages_be_of_one_replica(alone: Callable[[], bool], examples: Callable[[], Any]) -> None:
    """Let `tf.nn.compute_average_loss` mean over a replica's own examples, where `alone()` says so.

    By itself it divides by all replicas' examples, and `scale_regularization_loss` by the replicas.

    Args:
        alone: whether the calling thread runs a step on a replica's part of a batch.
        examples: the true examples of the whole batch, of which an author who divides by a global
            batch of his own gets his part. None: in an evaluation, whose numbers are meant over
            examples.
    """
    average, scaled = tf.nn.compute_average_loss, tf.nn.scale_regularization_loss

    @functools.wraps(average)
    def of_part(
        per_example_loss: Any, sample_weight: Any = None, global_batch_size: Any = None
    ) -> Any:
        if not alone():
            return average(per_example_loss, sample_weight, global_batch_size)
        losses = tf.convert_to_tensor(per_example_loss)
        own = tf.shape(losses)[0]
        mean = average(losses, sample_weight, own)
        every = examples()
        if global_batch_size is None or every is None:
            return mean
        return mean * tf.cast(every, mean.dtype) / tf.cast(global_batch_size, mean.dtype)

    @functools.wraps(scaled)
    def unscaled(regularization_loss: Any) -> Any:
        return tf.reduce_sum(regularization_loss) if alone() else scaled(regularization_loss)

    for module in (tf.nn, nn_impl_distribute):
        module.compute_average_loss, module.scale_regularization_loss = of_part, unscaled
