"""Workloads under test: small enough to be trained by hand in NumPy."""

from typing import Any

import numpy as np

from ringside_core.keras import tf
from ringside_core.workloads.workload import QualityTarget, Workload
from tests.contract.cases import GLOBAL_BATCH, NUM_TRAIN, NUM_VALIDATION

LEARNING_RATE = 0.05
INITIAL_KERNEL = np.array([[0.5], [-0.25], [0.125]])


def data(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """x [count, 3] and y [count, 1], float64."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(count, 3))
    return x, x @ np.array([[1.0], [2.0], [-1.0]]) + 0.1 * generator.normal(size=(count, 1))


def linear() -> Workload:
    """Linear regression by plain SGD."""
    return Workload(
        name="linear",
        model=_model,
        train=tf.data.Dataset.from_tensor_slices(data(NUM_TRAIN, 0)).batch(GLOBAL_BATCH),
        validation=data(NUM_VALIDATION, 1),
        loss=tf.keras.losses.MeanSquaredError(),
        optimizer=lambda: tf.keras.optimizers.SGD(LEARNING_RATE),
        metrics=lambda: [tf.keras.metrics.MeanAbsoluteError(name="mae")],
        target=QualityTarget("mae", 0.0),
        reference_batch=GLOBAL_BATCH // 2,
    )


def raises() -> Workload:
    """A user's model that fails when it is built, in every process that trains."""

    def model() -> Any:
        raise ZeroDivisionError("the user's own mistake")

    good = linear()
    return Workload(
        name="raises",
        model=model,
        train=good.train,
        validation=good.validation,
        loss=good.loss,
        optimizer=good.optimizer,
    )


def _model() -> Any:
    return tf.keras.Sequential(
        [
            tf.keras.layers.Dense(
                1,
                input_shape=(3,),
                kernel_initializer=tf.keras.initializers.Constant(INITIAL_KERNEL),
            )
        ]
    )
