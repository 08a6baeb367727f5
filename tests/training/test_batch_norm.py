"""Batch normalisation: statistics of each replica, or of all, and what is left of them.

Here one process computes as several replicas would; real ones: test_replicas.py.
"""

from typing import Any

import numpy as np
import pytest

from ringside_core.keras import tf
from ringside_core.workloads.workload import Workload
from tests.contract.cases import EPOCHS
from tests.training.replicas.runs import batches, train_serial
from tests.verify.zoo import GLOBAL_BATCH, NUM_TRAIN

RATE, EPSILON = 0.05, 1e-3
MOMENTUM = 0.75  # tf-keras takes 1 - momentum in float32 in any run: this one stays what it is
ABSOLUTE = 1e-10


def normalised_regression(*, synchronized: bool = False) -> Workload:
    """Linear regression on normalised features: every number of it can be written down."""
    model = lambda: tf.keras.Sequential(  # noqa: E731
        [
            tf.keras.Input((3,)),
            tf.keras.layers.BatchNormalization(
                momentum=MOMENTUM,
                epsilon=EPSILON,
                center=False,
                scale=False,
                synchronized=synchronized,
            ),
            tf.keras.layers.Dense(1, kernel_initializer="ones"),
        ]
    )
    return Workload(
        name="normalised_regression",
        model=model,
        train=data(NUM_TRAIN, 0),
        validation=data(7, 1),
        loss=tf.keras.losses.MeanSquaredError(),
        optimizer=lambda: tf.keras.optimizers.SGD(RATE),
    )


def data(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """x [count, 3], far from normalised, and y [count, 1]."""
    generator = np.random.default_rng(seed)
    x = generator.normal(2.0, 3.0, size=(count, 3))
    return x, x @ np.array([[1.0], [2.0], [-1.0]])


def by_hand(*, replicas: int, passes: int = 1) -> tuple[list[np.ndarray], float]:
    """Moving mean and variance, kernel and bias as so many replicas have them; validation loss."""
    x, y = data(NUM_TRAIN, 0)
    kernel, bias, moving = np.ones((3, 1)), np.zeros(1), np.array([[0.0] * 3, [1.0] * 3])
    size = GLOBAL_BATCH // replicas // passes
    for epoch in range(EPOCHS):
        for numbers, true in batches(NUM_TRAIN, GLOBAL_BATCH, epoch):
            into_kernel, into_bias, ends = np.zeros((3, 1)), np.zeros(1), []
            for replica in range(replicas):
                own = moving
                for part in range(passes):
                    begin = (replica * passes + part) * size
                    ids = numbers[begin : begin + size]
                    counts = (np.arange(begin, begin + size) < true)[:, None]
                    mean, variance = x[ids].mean(axis=0), x[ids].var(axis=0)
                    own = MOMENTUM * own + (1 - MOMENTUM) * np.stack([mean, variance])
                    normal = (x[ids] - mean) / np.sqrt(variance + EPSILON)
                    error = counts * (normal @ kernel + bias - y[ids])
                    into_kernel += 2 * normal.T @ error / true
                    into_bias += 2 * error.sum(axis=0) / true
                ends.append(own)
            moving = np.mean(ends, axis=0)
            kernel, bias = kernel - RATE * into_kernel, bias - RATE * into_bias
    held_out, target = data(7, 1)
    normal = (held_out - moving[0]) / np.sqrt(moving[1] + EPSILON)
    loss = float(np.mean((normal @ kernel + bias - target) ** 2))
    return [*moving, kernel, bias], loss


def assert_close(found: Any, expected: Any) -> None:
    """All weights agree, moving statistics included."""
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=ABSOLUTE)


@pytest.mark.parametrize(("replicas", "passes"), [(1, 1), (2, 1), (3, 2)])
def test_a_serial_run_computes_as_replicas_do(replicas: int, passes: int) -> None:
    """Weights, moving statistics and validation loss are NumPy's over the slices of each batch."""
    weights, epochs = train_serial(
        normalised_regression(), virtual_replicas=replicas, gradient_accumulation_steps=passes
    )

    expected, loss = by_hand(replicas=replicas, passes=passes)
    assert_close(weights, expected)
    assert epochs[-1].validation["loss"] == pytest.approx(loss, rel=1e-10)


def test_synchronised_statistics_are_those_of_the_whole_batch() -> None:
    """Alone, a synchronised layer computes what any other does."""
    weights, _ = train_serial(normalised_regression(synchronized=True))

    assert_close(weights, by_hand(replicas=1)[0])
