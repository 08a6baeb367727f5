"""Gradient accumulation: passes make the update that the whole batch would make.

Replicas in passes: test_replicas.py.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ringside_core.keras import tf
from ringside_core.specs import BatchPlan, RefusalError
from ringside_core.workloads.workload import Workload
from tests.contract.cases import EPOCHS
from tests.training.replicas.runs import batches, spec_of, train_serial
from tests.verify.zoo import GLOBAL_BATCH, NUM_TRAIN, ZOO
from trainers.accumulation import Passes
from trainers.lookups import Lookups

RATE = 0.0625  # a legacy optimizer keeps it in float32: this one stays what it is
ABSOLUTE = 1e-12
Clip = Callable[[list[np.ndarray]], list[np.ndarray]]


class Seen(tf.keras.layers.Layer):
    """Notes the batch sizes with which it is called in training."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self._sizes = sizes

    def call(self, x: Any, training: Any = None) -> Any:
        if training:
            self._sizes.append(x.shape[0])
        return x


def linear(optimizer: Callable[[], Any], sizes: list[int] | None = None) -> Workload:
    """Linear regression; the model's weights begin as constants."""
    model = lambda: tf.keras.Sequential(  # noqa: E731
        [
            tf.keras.Input((3,)),
            Seen([] if sizes is None else sizes),
            tf.keras.layers.Dense(1, kernel_initializer="ones"),
        ]
    )
    return Workload(
        name="linear",
        model=model,
        train=data(NUM_TRAIN, 0),
        validation=data(7, 1),
        loss=tf.keras.losses.MeanSquaredError(),
        optimizer=optimizer,
        metrics=lambda: [tf.keras.metrics.MeanAbsoluteError(name="mae")],
    )


def data(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """x [count, 3] and y [count, 1]."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(count, 3))
    return x, x @ np.array([[1.0], [2.0], [-1.0]]) + generator.normal(size=(count, 1))


def by_hand(clip: Clip = lambda gradients: gradients) -> tuple[list[np.ndarray], list[list[float]]]:
    """SGD on whole global batches: the weights, and [loss, mean absolute error] of each epoch."""
    x, y = data(NUM_TRAIN, 0)
    kernel, bias, seen = np.ones((3, 1)), np.zeros(1), []
    for epoch in range(EPOCHS):
        errors = []
        for numbers, true in batches(NUM_TRAIN, GLOBAL_BATCH, epoch):
            ids = numbers[:true]
            error = x[ids] @ kernel + bias - y[ids]
            errors.append(error)
            into_kernel, into_bias = clip([2 * x[ids].T @ error / true, 2 * error.mean(axis=0)])
            kernel, bias = kernel - RATE * into_kernel, bias - RATE * into_bias
        all_errors = np.concatenate(errors)
        seen.append([float(np.mean(all_errors**2)), float(np.mean(np.abs(all_errors)))])
    return [kernel, bias], seen


def clipped(norm: float) -> Clip:
    """Each gradient is shortened to a norm."""
    return lambda gradients: [g * min(1.0, norm / float(np.linalg.norm(g))) for g in gradients]


def clipped_together(norm: float) -> Clip:
    """All gradients are shortened to a common norm."""

    def clip(gradients: list[np.ndarray]) -> list[np.ndarray]:
        whole = float(np.sqrt(sum(np.sum(g**2) for g in gradients)))
        return [g * min(1.0, norm / whole) for g in gradients]

    return clip


def assert_close(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    """All weights agree."""
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=ABSOLUTE)


@pytest.mark.parametrize("passes", [1, 2, 3])
def test_passes_make_one_update(passes: int) -> None:
    """Weights, loss and metric are those of SGD on whole batches; the model sees parts of them."""
    sizes: list[int] = []

    weights, epochs = train_serial(
        linear(lambda: tf.keras.optimizers.SGD(RATE), sizes), gradient_accumulation_steps=passes
    )

    expected, seen = by_hand()
    assert_close(weights, expected)
    assert set(sizes) == {GLOBAL_BATCH // passes}
    for epoch, values in zip(epochs, seen, strict=True):
        assert [epoch.train["loss"], epoch.train["mae"]] == pytest.approx(values, rel=1e-12)
        assert epoch.examples == NUM_TRAIN


@pytest.mark.parametrize("kind", [tf.keras.optimizers, tf.keras.optimizers.legacy])
@pytest.mark.parametrize(
    ("by", "limit", "clip"),
    [
        ("clipnorm", 0.5, clipped(0.5)),
        ("global_clipnorm", 0.5, clipped_together(0.5)),
        ("clipvalue", 0.2, lambda gradients: [np.clip(g, -0.2, 0.2) for g in gradients]),
    ],
)
def test_the_mean_of_all_passes_is_clipped(kind: Any, by: str, limit: float, clip: Clip) -> None:
    """The weights are those of SGD whose gradient of the whole batch is clipped."""
    optimizer = lambda: kind.SGD(RATE, **{by: limit})  # noqa: E731

    weights, _ = train_serial(linear(optimizer), gradient_accumulation_steps=2)

    assert_close(weights, by_hand(clip)[0])


@pytest.mark.parametrize("name", ["embedding", "two_in_two_out", "sample_weights"])
def test_passes_equal_keras_own_step(name: str) -> None:
    """Sparse gradients, nests of inputs and outputs, and weights are cut and added up rightly."""
    whole, _ = train_serial(ZOO[name]())  # through Model.train_step itself

    weights, _ = train_serial(ZOO[name](), gradient_accumulation_steps=3)

    assert_close(weights, whole)


def test_a_batch_that_does_not_divide_is_refused() -> None:
    """The part of a replica must be a multiple of its passes; the message says what fits."""
    with pytest.raises(RefusalError, match=r"gradient_accumulation_steps=4. Try .* 8 or 16"):
        BatchPlan(global_batch=12, num_replicas=2, gradient_accumulation_steps=4)
    with pytest.raises(RefusalError, match="multiple of the passes"):
        spec_of(gradient_accumulation_steps=5)
    assert spec_of(gradient_accumulation_steps=4).batch_plan.per_pass_batch == 3


def test_what_holds_a_whole_step_is_refused() -> None:
    """A train_step of the user's and a loss scale know one pass only."""

    class Own(tf.keras.Sequential):
        def train_step(self, data: Any) -> Any:
            return {}

    spec = spec_of(gradient_accumulation_steps=2)
    scaled = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    scaled.compile(tf.keras.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.SGD()), "mse")

    with pytest.raises(RefusalError, match=r"Own\.train_step"):
        Passes(Own(), spec, 1, Lookups(None, spec))
    with pytest.raises(RefusalError, match="LossScaleOptimizer"):
        Passes(scaled, spec, 1, Lookups(None, spec))
    assert Passes(Own(), spec_of(), 1, Lookups(None, spec_of())).number == 1
