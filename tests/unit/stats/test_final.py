"""Ratios of the final, against SciPy and arithmetic done here."""

import math

import numpy as np
import pytest
from scipy import stats

from ringside.stats.figure import geometric_mean_with_interval, mean_with_interval
from ringside.stats.final import Sample, Samples, final_pairs, fit, holm, middle, turned, with_words
from ringside_core.specs import RefusalError

# Eight passes each; the middle half of the ratios of launch k is all RATIOS[k].
RATIOS = (1.05, 1.08, 1.06)
BASE = (100.0, 90.0, 70.0, 100.0, 100.0, 50.0, 80.0, 100.0)
STALLED = (1.0, 1.0, 0.3, 1.0, 1.0, 2.0, 1.0, 0.5)


def live(rates: dict[str, list[list[float]]]) -> Samples:
    """Samples from the rates of blocks, by arm, launch (from 1) and pass; 0 is a missing block."""
    return {
        arm: {
            number: Sample(1.0, {k: rate for k, rate in enumerate(blocks) if rate})
            for number, blocks in enumerate(launches, start=1)
        }
        for arm, launches in rates.items()
    }


def two_arms() -> Samples:
    """The machine changes from pass to pass, and three blocks of the first arm are disturbed."""
    first = [
        [rate * ratio * stalled for rate, stalled in zip(BASE, STALLED, strict=True)]
        for ratio in RATIOS
    ]
    return live({"a": first, "b": [list(BASE)] * 3})


def test_two_arms_are_the_middle_of_passes_and_a_t_test_over_launches() -> None:
    """Disturbed blocks and the machine cancel; the launches are the sample. By SciPy."""
    logs = np.log(RATIOS)
    expected = stats.ttest_1samp(logs, 0)
    low, high = expected.confidence_interval(0.95)

    ((found,), _) = final_pairs(two_arms(), (1, 2, 3))

    assert found.ratio.interval is not None and found.ratio.n == 3
    assert (found.first, found.second) == ("a", "b")
    assert found.ratio.value == pytest.approx(math.exp(logs.mean()))
    assert found.ratio.interval.low == pytest.approx(math.exp(low))
    assert found.ratio.interval.high == pytest.approx(math.exp(high))
    assert found.p_value == pytest.approx(expected.pvalue)


def test_arms_share_how_much_launches_scatter_beyond_their_blocks() -> None:
    """Four arms, three launches; the formula, term by term, with the trimmed mean of SciPy."""
    random = np.random.default_rng(2)
    logs = 0.02 * random.normal(size=(4, 3, 1)) + 0.03 * random.normal(size=(4, 3, 8))
    pairs = [(i, j) for i in range(4) for j in range(i + 1, 4)]
    d = np.array(
        [[stats.trim_mean(logs[i, k] - logs[j, k], 0.25) for k in range(3)] for i, j in pairs]
    )
    s2 = d.var(1, ddof=1)

    found = fit(logs[None], *map(np.array, zip(*pairs, strict=True)))

    own = np.array([middle(logs[i] - logs[j])[1].mean() for i, j in pairs])
    expected = np.sqrt(np.maximum(s2, (s2 / own).mean() * own) / 3)
    assert found.error[0] == pytest.approx(expected)
    assert found.difference[0] == pytest.approx(d.mean(1))
    assert found.freedom.tolist() == [3 * 2]
    assert found.half_widths()[0] == pytest.approx(stats.t.ppf(0.975, 6) * expected)


def test_the_middle_half_and_its_error() -> None:
    """Of eight values two at each end are left out; Tukey and McLaughlin's error, by hand."""
    values = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 100.0])
    pulled = np.clip(values, 2.0, 5.0)

    mean, error2 = middle(values)

    assert mean == pytest.approx(3.5)
    assert error2 == pytest.approx(pulled.var(ddof=1) * 7 / (4 * 3))
    assert np.isnan(middle(np.array([1.0, 2.0, np.nan]))[0])


def test_launches_in_which_a_pair_has_too_few_passes_do_not_count() -> None:
    """Three common passes are needed; then two launches are left, which give no interval."""
    rates = {"a": [list(BASE)] * 3, "b": [list(BASE)] * 3}
    rates["a"] = [[value * 1.5 for value in BASE]] * 3
    rates["b"][1] = [100.0, 90.0, 0, 0, 0, 0, 0, 0]

    ((found,), _) = final_pairs(live(rates), (1, 2, 3))

    assert found.ratio.value == pytest.approx(1.5)
    assert (found.ratio.n, found.ratio.interval) == (2, None)
    assert found.ratio.reason == "2 launches: too few for an interval, 3 are needed"


def test_runs_that_are_not_live_are_their_own_middle() -> None:
    """Arm + launch, residual with (a − 1)(r − 1) degrees of freedom: statsmodels' by hand."""
    random = np.random.default_rng(4)
    logs = 0.1 * random.normal(size=(3, 5))
    samples = {
        name: {k + 1: Sample(math.exp(value)) for k, value in enumerate(row)}
        for name, row in zip("abc", logs, strict=True)
    }
    rest = logs - logs.mean(1, keepdims=True) - logs.mean(0) + logs.mean()
    square = (rest**2).sum() / (2 * 4)

    pairs = {pair.names: pair for pair in final_pairs(samples, range(1, 6))[0]}

    for i, j in ((0, 1), (0, 2), (1, 2)):
        pair = pairs[frozenset(("abc"[i], "abc"[j]))]
        s2 = max(2 * square, (logs[i] - logs[j]).var(ddof=1))
        half = stats.t.ppf(0.975, 8) * math.sqrt(s2 / 5)
        assert pair.ratio.interval is not None and pair.ratio.value is not None
        assert pair.ratio.interval.high == pytest.approx(pair.ratio.value * math.exp(half))


def test_inflation_is_1_if_only_blocks_scatter() -> None:
    """And more if launches do; not known of two launches."""
    random = np.random.default_rng(5)
    blocks = 100 * np.exp(0.05 * random.normal(size=(4, 30, 12)))
    shifted = blocks * np.exp(0.05 * random.normal(size=(4, 30, 1)))

    plain, moved = (
        live(dict(zip("abcd", made.tolist(), strict=True))) for made in (blocks, shifted)
    )

    assert final_pairs(plain, range(1, 31))[1] == pytest.approx(1.0, abs=0.15)
    assert (final_pairs(moved, range(1, 31))[1] or 0) > 2
    assert final_pairs(plain, (1, 2))[1] is None


def test_equal_samples_have_no_scatter() -> None:
    """A ratio without an interval, not an interval without width."""
    ((found,), _) = final_pairs(live({"a": [[2.0] * 4] * 3, "b": [[1.0] * 4] * 3}), (1, 2, 3))

    assert found.ratio.value == pytest.approx(2.0)
    assert (found.ratio.interval, found.p_value) == (None, None)
    assert found.ratio.reason == "no scatter: the samples are all equal"


def test_turning_is_its_own_opposite() -> None:
    """`faster` becomes `slower`; turning twice changes nothing."""
    (found,) = with_words(final_pairs(two_arms(), (1, 2, 3))[0], "b", ["a", "b"])

    back = turned(found)

    assert (found.word, back.first, back.word) == ("faster", "b", "slower")
    assert back.ratio.value == pytest.approx(1 / (found.ratio.value or 0))
    assert turned(back).ratio.value == pytest.approx(found.ratio.value)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_bad_samples_are_refused_by_arm_launch_and_field(value: float) -> None:
    """They are never dropped silently."""
    samples = {"a": {1: Sample(value)}, "b": {1: Sample(1.0)}}

    with pytest.raises(RefusalError, match=r"throughput_examples_s=.* of 'a' in launch 1"):
        final_pairs(samples, (1,))


def test_words_against_serial_are_adjusted_together() -> None:
    """p = 0.03 alone would be called; as the smaller of two it is not."""
    random = np.random.default_rng(9)
    noise = 0.01 * random.normal(size=(3, 4))
    samples = {
        name: {k + 1: Sample(rate * math.exp(row[k])) for k in range(4)}
        for name, rate, row in zip("abs", (1.0185, 1.0, 1.0), noise, strict=True)
    }
    pairs, _ = final_pairs(samples, range(1, 5))
    p = {pair.names: pair.p_value for pair in pairs}

    found = {pair.names: pair.word for pair in with_words(pairs, "s", "ab")}

    of_a = p[frozenset("as")]
    assert of_a is not None and 0.025 < of_a < 0.05
    assert found[frozenset("as")] == "cannot tell"
    assert found[frozenset("ab")] == ""


def test_holm_by_hand() -> None:
    """0.01·3, 0.02·2, and the last no smaller than the one before."""
    assert holm(np.array([0.03, 0.01, 0.02])) == pytest.approx([0.04, 0.03, 0.04])


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
    assert mean_with_interval([1.0]).reason == "one launch"
    assert mean_with_interval([]).value is None


def test_an_arm_with_few_blocks_silences_no_other() -> None:
    """It has no ratio, and the others have theirs as if it had not been there."""
    random = np.random.default_rng(4)
    blocks = random.lognormal(0, 0.05, size=(3, 3, 12)).tolist()
    few = [[*launch[:3], *[0.0] * 9] for launch in blocks[2]]
    arms = live({"a": blocks[0], "b": blocks[1], "c": few})

    found, _ = final_pairs(arms, (1, 2, 3))

    alone, _ = final_pairs({"a": arms["a"], "b": arms["b"]}, (1, 2, 3))
    assert found[0] == alone[0]
    assert all(pair.ratio.value is None and "4 blocks" in pair.ratio.reason for pair in found[1:])
