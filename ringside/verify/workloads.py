"""Small workloads of verification: one counts gradients, the others show deliberate mistakes."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside.verify.cases import NUM_COUNTED
from ringside.verify.mistakes import TRAIN_EXAMPLES, VALIDATION_EXAMPLES
from ringside_core.keras import policy_scope, tf
from ringside_core.workloads.workload import Workload

# Keras rounds it to float32. This value is exact there, so results can be computed by hand.
MOMENTUM = 0.875
# No weight of the counting workload comes near it.
FAR_ABOVE = 1024.0


def counting(examples: int = NUM_COUNTED, *, own_loss: bool = False) -> Workload:
    """Examples by number; the final weights show how often the gradient of each was applied.

    There is one weight for each example. It begins at 0, and the example's loss is what it lacks to
    a number far above. So the gradient of example i is always -1 in weight i and 0 elsewhere. With
    plain SGD at rate 1, weight i ends at the sum of the factors with which this gradient was
    applied, in any order, however stale.

    Element i is (i, FAR_ABOVE).

    Args:
        examples: how many.
        own_loss: with a loss of an author's own, which trains true examples only; else with Keras'
            loss, which weighs the padding with 0 (trainers/whole_batch.py).
    """
    ids = np.arange(examples)
    labels = np.full((examples, 1), FAR_ABOVE)

    def one_hot(number: Any, y: Any) -> Any:
        return tf.one_hot(number, examples, dtype=tf.keras.backend.floatx()), y

    return Workload(
        name="counting",
        model=lambda: _counting_model(examples),
        train=(ids, labels),
        validation=(ids[:5], labels[:5]),
        preprocess=one_hot,
        loss=_lacking if own_loss else "mean_absolute_error",
        optimizer=lambda: tf.keras.optimizers.SGD(1.0),
    )


def _lacking(y: Any, output: Any) -> Any:
    return tf.squeeze(y - output, axis=-1)


def _counting_model(examples: int) -> Any:
    dense = tf.keras.layers.Dense
    with policy_scope(tf.keras.backend.floatx()):  # a user's own may be the global one
        return tf.keras.Sequential(
            [dense(1, use_bias=False, kernel_initializer="zeros", input_shape=(examples,))],
            name="counting",
        )


def control_workload() -> Workload:
    """A dense network, small enough for many trainings in a second."""
    return _workload("control", [])


def control_workload_with_batch_norm() -> Workload:
    """The same with a batch normalisation that must see the whole global batch."""
    return _workload(
        "control_with_batch_norm",
        [lambda: tf.keras.layers.BatchNormalization(momentum=MOMENTUM, synchronized=True)],
    )


def _workload(name: str, between: Sequence[Callable[[], Any]]) -> Workload:
    def model() -> Any:
        return tf.keras.Sequential(
            [
                tf.keras.layers.Dense(4, activation="tanh", input_shape=(3,), name="hidden"),
                *[make() for make in between],
                tf.keras.layers.Dense(1, name="output"),
            ],
            name=name,
        )

    return Workload(
        name=name,
        model=model,
        train=_data(TRAIN_EXAMPLES, seed=0),
        validation=_data(VALIDATION_EXAMPLES, seed=1),
        loss=tf.keras.losses.MeanSquaredError(),
        # Not an optimizer that scales its updates, such as Adam: it would hide doubled gradients.
        optimizer=lambda: tf.keras.optimizers.SGD(0.05, momentum=MOMENTUM),
        # Not linear in the examples: its mean over shares is wrong even for equal shares.
        metrics=lambda: [tf.keras.metrics.RootMeanSquaredError(name="rmse")],
    )


def _data(count: int, *, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """x [count, 3] and y [count, 1], float64."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(count, 3))
    noise = 0.1 * generator.normal(size=(count, 1))
    return x, np.sin(x @ np.array([[1.0], [2.0], [-1.0]])) + x[:, :1] + noise
