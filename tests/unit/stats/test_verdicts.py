"""Words, ratios and refusals, against SciPy's own tests and arithmetic done here."""

import math

import numpy as np
import pytest
from scipy import stats

from ringside.stats.figure import geometric_mean_with_interval, mean_with_interval
from ringside.stats.verdicts import Sample, fit_pairs, holm, pair_verdicts, turned
from ringside_core.specs import RefusalError

ORDERS = ((0, 1), (1, 0), (1, 0), (0, 1))  # balanced, so that a drift takes nothing off the mean


def two_arms(ratios: tuple[float, ...]) -> dict[str, list[Sample]]:
    """The second arm has 100 examples/s, the first one so many times as much."""
    return {
        "a": [Sample(r, 2 * r + ORDERS[r][0], 100 * ratio) for r, ratio in enumerate(ratios)],
        "b": [Sample(r, 2 * r + ORDERS[r][1], 100.0) for r in range(len(ratios))],
    }


def test_ratio_is_the_regression_on_order() -> None:
    """For two arms: least squares of the log ratio on a constant and the order."""
    ratios = (1.5, 1.6, 1.4, 1.55)
    places = np.array([a - b for a, b in ORDERS])
    design = np.column_stack([np.ones(4), places])
    logs = np.log(ratios)
    solution, rest, *_ = np.linalg.lstsq(design, logs, rcond=None)
    error = math.sqrt(rest[0] / 2 * np.linalg.inv(design.T @ design)[0, 0])
    half = stats.t.ppf(0.975, 2) * error

    (found,) = pair_verdicts(two_arms(ratios))

    assert found.ratio.interval is not None
    assert found.ratio.value == pytest.approx(math.exp(solution[0]))
    assert found.ratio.interval.low == pytest.approx(math.exp(solution[0] - half))
    assert found.ratio.interval.high == pytest.approx(math.exp(solution[0] + half))
    assert found.p_value == pytest.approx(2 * stats.t.sf(solution[0] / error, 2))
    assert (found.first, found.second, found.word) == ("a", "b", "faster")
    assert found.smallest_visible is not None and found.smallest_visible > 0


def test_faster_one_comes_first_and_turning_is_its_own_opposite() -> None:
    """`slower` becomes `faster` when turned; turning twice changes nothing."""
    (found,) = pair_verdicts(two_arms((0.5, 0.52, 0.49, 0.5)))

    back = turned(found)

    assert (found.first, found.word, back.first, back.word) == ("b", "faster", "a", "slower")
    again = turned(back).ratio.interval
    assert back.ratio.value is not None and found.ratio.value is not None
    assert found.ratio.interval is not None and again is not None
    assert back.ratio.value == pytest.approx(1 / found.ratio.value)
    assert again.low == pytest.approx(found.ratio.interval.low)


@pytest.mark.parametrize(("rounds", "least"), [(2, 4), (3, 4)])
def test_too_few_rounds_give_a_ratio_without_an_interval(rounds: int, least: int) -> None:
    """The cell says how many there are and how many are needed."""
    (found,) = pair_verdicts(two_arms((2.0, 2.1, 1.9)[:rounds]))

    assert found.ratio.value is not None and found.ratio.interval is None
    assert (found.word, found.p_value) == ("cannot tell", None)
    assert found.reason == f"{rounds} rounds: too few for an interval, {least} are needed"


def test_a_ratio_without_an_interval_lies_within_what_was_measured() -> None:
    """Two rounds of three arms, one slow once: no slope is taken off the pair."""
    places = {"a": (0, 3), "b": (1, 5), "c": (2, 4)}
    rates = {"a": (100.0, 110.0), "b": (100.0, 100.0), "c": (100.0, 20.0)}
    samples = {
        name: [Sample(r, places[name][r], rates[name][r]) for r in (0, 1)] for name in places
    }

    found = {(one.first, one.second): one for one in pair_verdicts(samples)}

    ratio = found["a", "b"].ratio
    assert ratio.interval is None
    assert ratio.value == pytest.approx(math.sqrt(1.0 * 1.1))


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_bad_samples_are_refused_by_arm_round_and_field(value: float) -> None:
    """They are never dropped silently."""
    samples = two_arms((1.0, 1.0, 1.0))
    samples["a"][1] = Sample(1, 3, value)

    with pytest.raises(RefusalError, match=r"throughput_examples_s=.* of 'a' in round 2"):
        pair_verdicts(samples)


def test_two_samples_of_a_round_are_refused() -> None:
    """Nobody can say which one counts."""
    samples = two_arms((1.0, 1.0, 1.0))
    samples["a"].append(samples["a"][0])

    with pytest.raises(RefusalError, match="two of 'a' in round 1"):
        pair_verdicts(samples)


def test_same_order_in_every_round_gives_no_interval() -> None:
    """A machine that slows down looks the same as a second arm that is slower."""
    samples = {
        name: [Sample(r, 2 * r + place, 100.0 + r * place) for r in range(6)]
        for place, name in enumerate("ab")
    }

    (found,) = pair_verdicts(samples)

    assert found.ratio.interval is None and "drift is not told apart" in found.reason


def test_holm_by_hand() -> None:
    """0.01·3, 0.02·2, and the last no smaller than the one before."""
    assert holm(np.array([0.03, 0.01, 0.02])) == pytest.approx([0.04, 0.03, 0.04])


def test_pure_drift_is_no_difference() -> None:
    """Equal arms on a machine that slows down by a tenth in each run: ratio 1."""
    t = np.array([[[0.0, 5, 7], [1, 4, 6], [2, 3, 8]]])

    fits = fit_pairs(-0.1 * t, t, np.array([0]), np.array([1]))

    assert fits.difference[0, 0] == pytest.approx(0, abs=1e-12)


def test_intervals_of_one_arm_are_scipys() -> None:
    """Student's t, of values and of logarithms."""
    values = [1.0, 2.0, 4.0, 3.0]
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    log_low, log_high = stats.ttest_1samp(np.log(values), 0).confidence_interval(0.95)

    plain, rate = mean_with_interval(values), geometric_mean_with_interval(values)

    assert plain.interval is not None and rate.interval is not None
    assert (plain.value, plain.interval.low, plain.interval.high) == pytest.approx((2.5, low, high))
    assert rate.value == pytest.approx(24**0.25)
    assert (rate.interval.low, rate.interval.high) == pytest.approx(
        (math.exp(log_low), math.exp(log_high))
    )
    assert (
        mean_with_interval([1.0, 2.0]).reason == "2 rounds: too few for an interval, 3 are needed"
    )
    assert mean_with_interval([]).value is None
