"""Ledger, counting and convergence checks, against sums made by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from ringside.verify.checks import (
    MARGIN,
    applied_once,
    convergence,
    training_ledger,
    validation_ledger,
)
from ringside.verify.trace import Trace
from tests.unit.verify.made_up import EPOCHS, NUM_TRAIN, ledger_of, trace


def test_each_example_once_passes() -> None:
    """Seven examples in three updates, in two epochs."""
    check = training_ledger({"rank-0": trace()}, trace(), synchronous=True)

    assert check.passed
    assert "7 examples" in check.finding


def test_a_double_and_a_missing_example_are_named() -> None:
    """Example 5 is fed in place of example 6."""
    fed = trace().fed.copy()
    fed[1, 2, 0, 0] = 5

    check = training_ledger({"rank-0": trace(fed=fed)}, trace(), synchronous=True)

    assert not check.passed
    assert "epoch 2" in check.finding
    assert "example 6 was never fed" in check.finding
    assert "example 5" in check.finding


def test_the_same_examples_in_other_updates_are_found() -> None:
    """The epoch is whole, but its second update holds other examples."""
    fed = trace().fed.copy()
    fed[0, 1, 0, 0], fed[0, 2, 0, 0] = fed[0, 2, 0, 0], fed[0, 1, 0, 0]

    check = training_ledger({"rank-0": trace(fed=fed)}, trace(), synchronous=True)
    free = training_ledger({"rank-0": trace(fed=fed)}, trace(), synchronous=False)

    assert not check.passed
    assert "update 2" in check.finding
    assert free.passed


def test_a_validation_that_counts_other_examples_is_found() -> None:
    """One twice and one never; the count alone would not show it."""
    meta = {**trace().meta, "validation_ledgers": [ledger_of(range(5)), ledger_of([0, 1, 2, 2, 4])]}

    check = validation_ledger({"rank-0": trace(meta=meta)}, trace())

    assert validation_ledger({"rank-0": trace()}, trace()).passed
    assert not check.passed
    assert "epoch 2" in check.finding


def counted(times: float = 1.0) -> Trace:
    """Final weights of the counting workload after the updates of `trace`, added up by hand."""
    weights = np.array([1 / 3] * 6 + [1 / 1]) * EPOCHS
    weights[4] *= times
    return trace(final={"000 kernel": weights.reshape(NUM_TRAIN, 1)})


def test_gradients_that_are_applied_once_pass() -> None:
    """Six examples in batches of three, one alone, two epochs."""
    assert applied_once({"rank-0": counted()}, synchronous=True, num_examples=NUM_TRAIN).passed


@pytest.mark.parametrize("times", [0.0, 2.0, 1 + 1e-6, math.nan])
def test_a_gradient_lost_doubled_or_rescaled_is_found(times: float) -> None:
    """The example is named."""
    check = applied_once({"rank-0": counted(times)}, synchronous=True, num_examples=NUM_TRAIN)

    assert not check.passed
    assert "example 4" in check.finding


def test_one_process_that_saw_no_number_is_not_outvoted() -> None:
    """Whichever of the two processes it is."""
    for first, second in ((counted(math.nan), counted()), (counted(), counted(math.nan))):
        arm = {"rank-0": first, "rank-1": second}

        assert not applied_once(arm, synchronous=True, num_examples=NUM_TRAIN).passed


def test_an_example_that_the_counting_never_fed_is_found() -> None:
    """The sum alone would agree with a ledger that lacks it too."""
    fed = trace().fed.copy()
    fed[:, 2, 0, 0] = -1
    weights = np.array([1 / 3] * 6 + [0.0]).reshape(-1, 1) * EPOCHS
    arm = {"rank-0": trace(fed=fed, final={"k": weights})}

    check = applied_once(arm, synchronous=True, num_examples=NUM_TRAIN)

    assert not check.passed
    assert "example 6 was never fed" in check.finding


def test_half_the_epochs_and_an_idle_replica_are_found() -> None:
    """Also for an arm whose updates have no single right result."""
    half = trace(fed=trace().fed[:1])
    idle = trace(fed=np.concatenate([trace().fed, np.full_like(trace().fed, -2)], axis=2))
    once = trace(meta={**trace().meta, "validation_ledgers": [ledger_of(range(5))]})

    assert "1 epochs" in training_ledger({"a": half}, trace(), synchronous=False).finding
    assert "replica 2" in training_ledger({"a": idle}, trace(), synchronous=False).finding
    assert not validation_ledger({"a": once}, trace()).passed
    assert not training_ledger({}, trace(), synchronous=False).passed
    assert not validation_ledger({}, trace()).passed


def test_workers_count_their_own_batches() -> None:
    """Two replicas of two examples: a quarter each together, a half each apart."""
    fed = np.array([[[[0, 1], [2, 3]]]])
    quarter, half = (trace(fed=fed, final={"k": np.full((4, 1), w)}) for w in (1 / 4, 1 / 2))

    assert applied_once({"a": quarter}, synchronous=True, num_examples=4).passed
    assert applied_once({"a": half}, synchronous=False, num_examples=4).passed
    assert not applied_once({"a": half}, synchronous=True, num_examples=4).passed
    assert not applied_once({"a": quarter}, synchronous=False, num_examples=4).passed


def seeds(shares: list[float]) -> tuple[list[Trace], list[Trace]]:
    """Arms that give away these shares of a fall from 2 to 1."""
    reference = [trace(evaluation={"loss": np.array([1.0])}) for _ in shares]
    arms = [trace(evaluation={"loss": np.array([1.0 + share])}) for share in shares]
    for one in (*reference, *arms):
        one.meta["initial_loss"] = 2.0
    return arms, reference


def test_convergence_is_a_one_sided_t_test() -> None:
    """The printed bound is that of scipy's own test, on both sides of the margin."""
    for shares in ([0.01, 0.03, -0.02, 0.0, 0.02], [0.08, 0.12, 0.02, 0.11, 0.05]):
        check = convergence(*seeds(shares))

        p = stats.ttest_1samp(shares, MARGIN, alternative="less").pvalue
        assert check.passed is bool(p < 0.05)


def test_false_certificates_are_as_rare_as_promised() -> None:
    """Arms that lose exactly the margin pass in at most 5 % of 2,000 draws."""
    generator = np.random.default_rng(3)

    passed = sum(
        convergence(*seeds(list(generator.normal(MARGIN, 0.05, 5)))).passed for _ in range(2000)
    )

    # The 99.9 % quantile of what 5 % of 2,000 gives by chance.
    assert passed <= stats.binom.ppf(0.999, 2000, 0.05)
    assert passed >= stats.binom.ppf(0.001, 2000, 0.05)


def test_a_reference_that_learns_nothing_certifies_nothing() -> None:
    """Otherwise an arm that learns nothing would pass too."""
    arms, reference = seeds([0.0, 0.0, 0.01, 0.0, 0.0])
    for one in (*arms, *reference):
        one.meta["initial_loss"] = 0.9

    check = convergence(arms, reference)

    assert not check.passed
    assert "does not learn" in check.finding
