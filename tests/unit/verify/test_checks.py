"""Ledger, counting and convergence checks, against sums made by hand."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from ringside.verify.checks import (
    MARGIN,
    applied_once,
    convergence,
    each_applied_once,
    independent_randomness,
    reference_is_plain_keras,
    training_ledger,
    validation_ledger,
)
from ringside.verify.trace import OTHER_DATA, Trace
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


def test_each_counting_case_must_pass() -> None:
    """Of two with other numbers of examples, one lost a gradient; or was fed another number."""
    right, wrong = {"rank-0": counted()}, {"rank-0": counted(0.0)}

    assert each_applied_once({NUM_TRAIN: right}, synchronous=True).passed
    assert not each_applied_once({NUM_TRAIN: wrong}, synchronous=True).passed
    assert not each_applied_once({NUM_TRAIN: right, 8: right}, synchronous=True).passed
    assert not each_applied_once({NUM_TRAIN: right, 8: {}}, synchronous=True).passed


def test_a_counting_of_one_epoch_in_two_is_found() -> None:
    """The sum over what was fed would agree."""
    half = trace(fed=trace().fed[:1], final={"k": counted().final["000 kernel"] / 2})

    check = applied_once({"rank-0": half}, synchronous=True, num_examples=NUM_TRAIN)

    assert not check.passed
    assert "1 epochs" in check.finding


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

    assert applied_once({"a": quarter}, synchronous=True, num_examples=4, epochs=1).passed
    assert applied_once({"a": half}, synchronous=False, num_examples=4, epochs=1).passed
    assert not applied_once({"a": half}, synchronous=True, num_examples=4, epochs=1).passed
    assert not applied_once({"a": quarter}, synchronous=False, num_examples=4, epochs=1).passed


Traces = list[Trace]


def seeds(shares: list[float], *, finer: float = 0.9) -> tuple[Traces, Traces, Traces]:
    """Arms that give away these shares of a fall from 2 to 1; a finer run falls to this loss."""
    ends = [1.0 + share for share in shares], [1.0] * len(shares), [finer] * len(shares)
    arms, reference, more = (
        [trace(evaluation={"loss": np.array([end])}) for end in of_one] for of_one in ends
    )
    for one in (*arms, *reference, *more):
        one.meta.update(initial_loss=2.0, ledgers=[{"count": 7}, {"count": 7}])
    return arms, reference, more


def test_without_validation_data_convergence_is_not_covered() -> None:
    """Nothing says how far the loss falls; other examples than planned still fail."""
    traces = seeds([0.0, 0.0])
    for one in (*traces[0], *traces[1], *traces[2]):
        one.evaluation = {}

    check = convergence(*traces)

    assert (check.passed, check.covered) == (True, False)
    traces[0][0].meta["ledgers"] = [{"count": 7}]
    assert not convergence(*traces).passed


def test_convergence_is_a_one_sided_t_test() -> None:
    """The verdict is that of scipy's own test, below and above the margin."""
    for shares in ([0.01, 0.03, -0.02, 0.0, 0.02], [0.08, 0.12, 0.02, 0.11, 0.05]):
        check = convergence(*seeds(shares))

        p = stats.ttest_1samp(shares, MARGIN, alternative="less").pvalue
        assert check.passed is bool(p < 0.05)


def test_an_arm_that_is_too_good_does_not_pass() -> None:
    """It may fall as far as a serial run with as many updates, and no margin further."""
    better = [-0.08, -0.12, -0.02, -0.11, -0.05]

    for scale in (1.0, 2.0, 3.0):
        shares = [scale * share for share in better]
        check = convergence(*seeds(shares, finer=0.9))

        gained = [(0.9 - (1 + share)) / (2 - 0.9) for share in shares]
        p = stats.ttest_1samp(gained, MARGIN, alternative="less").pvalue
        assert check.passed is bool(p < 0.05)
    assert "too good to be the same training" in check.finding
    assert not check.passed
    # A finer run that falls less takes nothing away from the serial run's own fall.
    assert convergence(*seeds([0.0, 0.01, -0.01, 0.0, 0.0], finer=1.5)).passed


def test_convergence_is_over_as_many_examples() -> None:
    """An arm that trains longer than the serial run has it easy."""
    arms, reference, finer = seeds([0.0, 0.01, -0.01, 0.0, 0.0])
    arms[2].meta["ledgers"] = [{"count": 7}] * 3

    check = convergence(arms, reference, finer)

    assert not check.passed
    assert check.finding == "a seed trained on 21 examples, the serial run on 14"


@pytest.mark.slow
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
    arms, reference, finer = seeds([0.0, 0.0, 0.01, 0.0, 0.0])
    for one in (*arms, *reference):
        one.meta["initial_loss"] = 0.9

    check = convergence(arms, reference, finer)

    assert not check.passed
    assert "does not learn" in check.finding


def test_replicas_that_draw_the_same_are_found() -> None:
    """The second and the third of three, in the second layer; the finding counts from 1."""
    numbers = np.arange(12.0).reshape(3, 4)
    alike = numbers.copy()
    alike[2] = alike[1]
    good = {"dropout (Dropout)": numbers, "noise (GaussianNoise)": numbers + 1}
    bad = {**good, "noise (GaussianNoise)": alike}

    arm = {"a": trace(drawn=good), "b": trace(drawn=bad)}
    passed = independent_randomness({"a": trace(drawn=good)}, replicas=3, synchronous=True)
    failed = independent_randomness(arm, replicas=3, synchronous=True)
    told = independent_randomness(arm, replicas=3, synchronous=False)

    assert passed.passed
    assert (
        passed.finding == "3 replicas draw different numbers in 2 layers and by tf.random, untied"
    )
    assert not failed.passed
    assert "replicas 2 and 3" in failed.finding
    assert "noise (GaussianNoise)" in failed.finding
    assert told.passed
    assert not told.covered
    assert told.finding.startswith("not covered, because TensorFlow seeds all workers alike")


def test_a_model_without_random_layers_needs_no_draws() -> None:
    """The finding says so; but where a layer draws, nothing seen is not enough."""
    nothing_to_ask = independent_randomness(None, replicas=2, synchronous=True)

    assert nothing_to_ask.passed
    assert nothing_to_ask.finding == "no layer draws random numbers"
    for arm in ({}, {"a": trace()}, {"a": trace(meta={"error": "RefusalError: x"})}):
        assert not independent_randomness(arm, replicas=2, synchronous=False).passed


def plain(**changes: Any) -> Trace:
    """What plain Keras did: as the made-up reference, but evaluated at the two ends only."""
    without = changes.pop("without", [])
    evaluation = {name: values[-1:] for name, values in trace().evaluation.items()}
    meta = {"limits": ["something left out"] if without else [], "without": without}
    return trace(**{"evaluation": evaluation, "meta": meta, **changes})


def test_a_reference_like_plain_keras_passes_and_says_what_was_left_out() -> None:
    """Weights, slots, losses, metrics, evaluation and predictions are all equal."""
    check = reference_is_plain_keras(plain(), trace())
    fewer = reference_is_plain_keras(plain(without=["metrics"], metrics={}), trace())

    assert check.passed
    assert check.name == "reference is plain Keras"
    assert fewer.passed
    assert "something left out" in fewer.finding


@pytest.mark.parametrize(
    "changes",
    [
        {"weights": {name: rows * (1 + 1e-8) for name, rows in trace().weights.items()}},
        {"weights": {}},
        {"slots": {}},
        {"loss": trace().loss * (1 + 1e-8)},
        {"metrics": {}},
        {"evaluation": {"loss": trace().evaluation["loss"][-1:] * (1 + 1e-8)}},
        {"before": {"loss": np.array(1.9 * (1 + 1e-8))}},
        {"predictions": {}},
    ],
)
def test_a_reference_unlike_plain_keras_fails(changes: dict[str, Any]) -> None:
    """One part in a hundred million is too much; so is a part that plain Keras has not."""
    check = reference_is_plain_keras(plain(**changes), trace())

    assert not check.passed
    assert "the reference, with which all arms are compared, differs" in check.finding


def test_data_that_are_others_at_each_loading_are_what_is_told() -> None:
    """Any other number would be a consequence; an error of plain Keras is named as its own."""
    other = reference_is_plain_keras(Trace(meta={"error": OTHER_DATA}), trace())
    failed = reference_is_plain_keras(Trace(meta={"error": "ValueError: x"}), trace())

    assert not other.passed
    assert other.finding.startswith("the program's data are others")
    assert failed.finding == "plain Keras ended with ValueError: x"


def test_without_a_training_the_evaluation_still_counts() -> None:
    """Batch normalisation in passes: plain Keras only evaluates."""
    groups = ["final", "loss", "metrics", "slots", "weights"]
    empty = {"final": {}, "metrics": {}, "slots": {}, "weights": {}, "loss": np.zeros(0)}
    wrong = {"loss": np.array([1.2 * (1 + 1e-8)])}

    assert reference_is_plain_keras(plain(without=groups, **empty), trace()).passed
    assert not reference_is_plain_keras(
        plain(without=groups, evaluation=wrong, **empty), trace()
    ).passed


def test_an_error_of_plain_keras_is_told() -> None:
    """The reference cannot be called right then."""
    check = reference_is_plain_keras(Trace(meta={"error": "ValueError: no"}), trace())

    assert not check.passed
    assert "plain Keras ended with ValueError: no" in check.finding
