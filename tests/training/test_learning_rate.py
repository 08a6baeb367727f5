"""The learning-rate rule against its formula: base × (batch ÷ reference), or its root; warm-up."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from launch import execute, make_plan
from ringside_core.keras import tf
from ringside_core.specs import LearningRateRule, RefusalError, RunSpec
from tests.contract.cases import EPOCHS, FAMILIES, GLOBAL_BATCH, NUM_TRAIN, Case
from tests.contract.linear import INITIAL_KERNEL, LEARNING_RATE, data
from tests.training.momentum import spec_of
from trainers.learning_rate import apply_rule

STEPS = 4
BATCH, REFERENCE = 6, 24


def by(rule: Any, warmup: int = 0) -> RunSpec:
    """A run in batches of 6 by this rule."""
    return spec_of(
        global_batch=BATCH, learning_rate_rule=LearningRateRule(rule=rule, warmup_epochs=warmup)
    )


@pytest.mark.parametrize("warmup", [0, 2])
@pytest.mark.parametrize(("rule", "after"), [("linear", 0.1 * 6 / 24), ("sqrt", 0.1 * 0.5)])
def test_the_rate_follows_the_global_batch(rule: str, after: float, warmup: int) -> None:
    """Without warm-up at once; with it on a straight line from the base rate."""
    optimizer = tf.keras.optimizers.SGD(0.1)

    apply_rule(optimizer, by(rule, warmup), REFERENCE, STEPS)

    weight, rates = tf.Variable(0.0), []
    for _ in range(3 * STEPS + 1):  # the rate of an update is how far a gradient of 1 moves
        before = float(weight)
        optimizer.apply_gradients([(tf.constant(1.0), weight)])
        rates.append(before - float(weight))
    last = warmup * STEPS
    straight = [
        0.1 + (after - 0.1) * min(1.0, update / last) if last else after
        for update in range(3 * STEPS + 1)
    ]
    assert rates == pytest.approx(straight, rel=1e-5)


@pytest.mark.parametrize("legacy", [False, True])
def test_other_optimizers_follow_it_too(legacy: bool) -> None:
    """Legacy ones keep their rate elsewhere; a loss scale is a wrapper."""
    kinds = tf.keras.optimizers.legacy if legacy else tf.keras.optimizers
    optimizer = kinds.SGD(0.1)
    if not legacy:
        optimizer = tf.keras.mixed_precision.LossScaleOptimizer(optimizer)

    apply_rule(optimizer, by("linear"), BATCH // 2, STEPS)

    assert float(optimizer.learning_rate) == pytest.approx(0.2)


def test_without_a_rule_the_rate_is_the_author_s() -> None:
    """Also without a reference."""
    optimizer = tf.keras.optimizers.SGD(0.1)

    apply_rule(optimizer, by("none"), None, STEPS)

    assert float(optimizer.learning_rate) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("optimizer", "reference", "steps", "words"),
    [
        ("SGD", None, STEPS, "Set reference_batch"),
        ("SGD", REFERENCE, None, "needs data whose size is known"),
        ("scheduled", REFERENCE, STEPS, "needs a constant learning rate.*CosineDecay"),
        ("legacy scheduled", REFERENCE, STEPS, "needs a constant learning rate.*CosineDecay"),
    ],
)
def test_what_a_rule_needs(
    optimizer: str, reference: int | None, steps: int | None, words: str
) -> None:
    """Each lack by one message."""
    kinds = tf.keras.optimizers.legacy if "legacy" in optimizer else tf.keras.optimizers
    rate = tf.keras.optimizers.schedules.CosineDecay(0.1, 10) if "scheduled" in optimizer else 0.1

    with pytest.raises(RefusalError, match=words):
        apply_rule(kinds.SGD(rate), by("linear", warmup=1), reference, steps)


def by_hand() -> np.ndarray:
    """The kernel and the bias: the rate rises over the first epoch to twice its value."""
    x, y = data(NUM_TRAIN, 0)
    weights, x = np.append(INITIAL_KERNEL.ravel(), 0.0), np.hstack([x, np.ones_like(y)])
    of_epoch = -(-NUM_TRAIN // GLOBAL_BATCH)
    for update in range(EPOCHS * of_epoch):
        first = update % of_epoch * GLOBAL_BATCH
        rows, wanted = x[first : first + GLOBAL_BATCH], y[first : first + GLOBAL_BATCH, 0]
        rate = LEARNING_RATE * (1 + min(update / of_epoch, 1))
        weights = weights - rate * 2 * (rows @ weights - wanted) @ rows / len(rows)
    return weights


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("case", [Case("serial", 1), *FAMILIES], ids=str)
def test_a_rate_follows_the_batch_with_a_warm_up(case: Case, tmp_path: Path) -> None:
    """`--learning-rate-rule linear --warmup-epochs 1`, of a rate for half of the batch."""
    spec = case.spec(
        "tests.contract.linear:linear",
        authors_batch=GLOBAL_BATCH,
        learning_rate_rule=LearningRateRule(rule="linear", warmup_epochs=1),
    )

    execution = execute(make_plan(spec, run_dir=tmp_path), deadline_s=120.0)

    assert execution.outcome.kind == "completed", "\n".join(execution.last_lines)
    with np.load(tmp_path / "checkpoint.npz") as found:
        weights = np.append(found["weight_0000"].ravel(), found["weight_0001"])
    # A schedule of Keras computes in float32, whatever the precision of the weights.
    np.testing.assert_allclose(weights, by_hand(), rtol=1e-7)
