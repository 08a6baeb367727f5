"""Words, ratios, looks and refusals, against SciPy's own tests and arithmetic done here."""

import math

import numpy as np
import pytest
from scipy import stats

from ringside.report.sections.noise import noise_section
from ringside.stats.figure import geometric_mean_with_interval, mean_with_interval
from ringside.stats.looks import level
from ringside.stats.pairs import holm
from ringside.stats.summary import summarize
from ringside.stats.verdicts import Question, Sample, pair_verdicts, turned
from ringside_core.specs import Comparison, Look, RefusalError, Rounds
from tests.unit.report.judged import bare

AB = [Question("a", "b")]
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

    (found,) = pair_verdicts(two_arms(ratios), AB)

    assert found.ratio.interval is not None
    assert found.ratio.value == pytest.approx(math.exp(solution[0]))
    assert found.ratio.interval.low == pytest.approx(math.exp(solution[0] - half))
    assert found.ratio.interval.high == pytest.approx(math.exp(solution[0] + half))
    assert found.p_value == pytest.approx(2 * stats.t.sf(solution[0] / error, 2))
    assert (found.first, found.second, found.word) == ("a", "b", "faster")
    assert found.smallest_visible is not None and found.smallest_visible > 0


def test_faster_one_comes_first_and_turning_is_its_own_opposite() -> None:
    """`slower` becomes `faster` when turned; turning twice changes nothing."""
    (found,) = pair_verdicts(two_arms((0.5, 0.52, 0.49, 0.5)), AB)

    back = turned(found)

    assert (found.first, found.word, back.first, back.word) == ("b", "faster", "a", "slower")
    again = turned(back).ratio.interval
    assert back.ratio.value is not None and found.ratio.value is not None
    assert found.ratio.interval is not None and again is not None
    assert back.ratio.value == pytest.approx(1 / found.ratio.value)
    assert again.low == pytest.approx(found.ratio.interval.low)


def live(rates: dict[str, list[list[float]]]) -> dict[str, list[Sample]]:
    """Live samples from the rates of the blocks, by arm, launch and pass; 0 is a missing block."""
    return {
        arm: [
            Sample(number, position, 1.0, {k: rate for k, rate in enumerate(blocks) if rate})
            for number, blocks in enumerate(launches)
        ]
        for position, (arm, launches) in enumerate(rates.items())
    }


# Eight passes each; the middle half of the ratios of launch k is all RATIOS[k].
RATIOS = (1.05, 1.08, 1.06)
BASE = (100.0, 90.0, 70.0, 100.0, 100.0, 50.0, 80.0, 100.0)
STALLED = (1.0, 1.0, 0.3, 1.0, 1.0, 2.0, 1.0, 0.5)


def two_live_arms() -> dict[str, list[Sample]]:
    """The machine changes from pass to pass, and three blocks of the first arm are disturbed."""
    first = [
        [rate * ratio * stalled for rate, stalled in zip(BASE, STALLED, strict=True)]
        for ratio in RATIOS
    ]
    return live({"a": first, "b": [list(BASE)] * 3})


def test_live_ratio_is_the_middle_of_passes_and_a_t_test_over_launches() -> None:
    """Disturbed blocks and the machine cancel; the launches are the sample. By SciPy."""
    logs = np.log(RATIOS)
    expected = stats.ttest_1samp(logs, 0)
    low, high = expected.confidence_interval(0.95)

    (found,) = pair_verdicts(two_live_arms(), AB)

    assert found.ratio.interval is not None and found.ratio.n == 3
    assert found.ratio.value == pytest.approx(math.exp(logs.mean()))
    assert found.ratio.interval.low == pytest.approx(math.exp(low))
    assert found.ratio.interval.high == pytest.approx(math.exp(high))
    assert found.p_value == pytest.approx(expected.pvalue)


def test_noise_is_moderated_by_that_of_the_other_pairs() -> None:
    """Four arms whose launches differ by hand-made amounts; the formula, term by term."""
    random = np.random.default_rng(2)
    logs = 0.02 * random.normal(size=(4, 3))
    rates = {
        name: [[100 * math.exp(of_launch)] * 4 for of_launch in of_arm]
        for name, of_arm in zip("abcd", logs, strict=True)
    }
    pairs = [(i, j) for i in range(4) for j in range(i + 1, 4)]
    variances = np.array([np.var(logs[i] - logs[j], ddof=1) for i, j in pairs])
    typical = np.quantile(variances / (stats.chi2.ppf(0.4, 2) / 2), 0.4)
    borrowed = 2 * np.minimum(1, typical / variances)  # half as many launches as arms
    moderated = (2 * variances + borrowed * typical) / (2 + borrowed)
    halves = stats.t.ppf(0.975, 2 + borrowed) * np.sqrt(moderated / 3)

    found = pair_verdicts(live(rates), [Question("abcd"[i], "abcd"[j]) for i, j in pairs])

    for one, half in zip(found, halves, strict=True):
        assert one.ratio.interval is not None and one.ratio.value is not None
        assert one.ratio.interval.high == pytest.approx(one.ratio.value * math.exp(half))


def test_missing_blocks_and_launches() -> None:
    """A launch counts with three common passes; a run without blocks has none."""
    rates = {"a": [list(BASE)] * 4, "b": [list(BASE)] * 4}
    rates["a"][1] = [100.0, 0, 0, 100.0, 0, 0, 0, 100.0]
    rates["b"][2] = [100.0, 90.0, 0, 0, 0, 0, 0, 0]
    rates["b"][3] = []

    (found,) = pair_verdicts(live(rates), AB)
    (nothing,) = pair_verdicts(live({"a": rates["a"][3:], "b": [[]]}), AB)

    assert found.ratio.n == 2 and found.ratio.interval is None
    assert nothing.ratio.value is None
    assert nothing.reason == "no round in which both have 3 blocks in common"


def test_an_arm_that_was_chosen_needs_more_to_be_believed() -> None:
    """Best of three: its lower end at 2.5 % ÷ 3, its p-value three times as large; turned too."""
    logs = np.log(RATIOS)
    error = logs.std(ddof=1) / math.sqrt(3)
    (plain,) = pair_verdicts(two_live_arms(), AB)

    (chosen,) = pair_verdicts(two_live_arms(), [Question("b", "a", 1, 3)])

    assert (chosen.first, chosen.chosen_of) == ("a", (3, 1))
    assert chosen.ratio.interval is not None and plain.ratio.interval is not None
    low = logs.mean() - stats.t.isf(0.025 / 3, 2) * error
    assert chosen.ratio.interval.low == pytest.approx(math.exp(low))
    assert chosen.ratio.interval.high == pytest.approx(plain.ratio.interval.high)
    assert plain.p_value is not None and chosen.p_value == pytest.approx(3 * plain.p_value)


def test_a_family_and_a_look_share_their_chance() -> None:
    """Alone p is 0.02: a word; as one of three questions, or at a later look, none, and why."""
    samples = two_live_arms() | {
        name: [Sample(k, 9, 1.0, dict(enumerate(BASE))) for k in range(3)] for name in "cd"
    }
    # All other arms are alike to the last digit, so they lend no noise.
    (alone,) = pair_verdicts(two_live_arms(), AB)
    (later,) = pair_verdicts(two_live_arms(), AB, level=0.005)
    assert alone.p_value is not None and 0.005 < alone.p_value < 0.05
    assert (alone.word, later.word) == ("faster", "cannot tell")
    assert later.reason == (
        "with one look it would be called; this look may spend 0.50 % of chance"
    )
    del samples["c"], samples["d"]
    twice = [*AB, Question("b", "a"), Question("a", "b")]
    assert {one.reason for one in pair_verdicts(samples, twice)} == {
        "alone it would be called; as one of 3 questions it can be chance"
    }


@pytest.mark.parametrize(("rounds", "least"), [(2, 4), (3, 4)])
def test_too_few_rounds_give_a_ratio_without_an_interval(rounds: int, least: int) -> None:
    """The cell says how many there are and how many are needed."""
    (found,) = pair_verdicts(two_arms((2.0, 2.1, 1.9)[:rounds]), AB)

    assert found.ratio.value is not None and found.ratio.interval is None
    assert (found.word, found.p_value) == ("cannot tell", None)
    assert found.reason == f"{rounds} rounds: too few for an interval, {least} are needed"


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_bad_samples_are_refused_by_arm_round_and_field(value: float) -> None:
    """They are never dropped silently."""
    samples = two_arms((1.0, 1.0, 1.0))
    samples["a"][1] = Sample(1, 3, value)

    with pytest.raises(RefusalError, match=r"throughput_examples_s=.* of 'a' in round 2"):
        pair_verdicts(samples, AB)


def test_same_order_in_every_round_gives_no_interval() -> None:
    """A machine that slows down looks the same as a second arm that is slower."""
    samples = {
        name: [Sample(r, 2 * r + place, 100.0 + r * place) for r in range(6)]
        for place, name in enumerate("ab")
    }

    (found,) = pair_verdicts(samples, AB)

    assert found.ratio.interval is None and "drift is not told apart" in found.reason


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
    assert (
        mean_with_interval([1.0, 2.0]).reason == "2 rounds: too few for an interval, 3 are needed"
    )
    assert mean_with_interval([]).value is None


UNTIL = Rounds(least=3, most=100, interval_width=0.05)


def looked_at(asked: Rounds, looks: int) -> Comparison:
    """Three rounds, after so many earlier looks."""
    each = Look(unix_s=1.7e9, rounds=2, asked=UNTIL)
    return bare().replace(asked=asked, looks=(each,) * looks)


def test_all_looks_together_have_5_percent() -> None:
    """However many there are; one look at rounds that were counted before has all of it."""
    spent = [level(looked_at(UNTIL, number)) for number in range(40)]

    assert level(looked_at(Rounds(), 0)) == pytest.approx(0.05)
    assert spent[:3] == pytest.approx([0.04, 0.005, 0.0025])
    assert sum(spent) <= 0.05


def test_the_report_says_how_many_looks_there_were() -> None:
    """And what they cost; the verdicts have that level."""
    once, again = (looked_at(UNTIL, number) for number in (0, 2))

    def said(comparison: Comparison) -> str:
        section = noise_section(comparison, summarize(comparison))
        return next(
            text
            for one in section.blocks
            for name, text in getattr(one, "items", ())
            if name == "Looks"
        )

    assert said(again) == (
        "3 looks, the earlier after 2 and 2 rounds: in each family of questions a word of this "
        "look is wrong in at most 0.25 % of such experiments; of all looks together, however many, "
        "in at most 5.0 %"
    )
    assert said(once).startswith("1 look: ") and "4.0 %" in said(once)
    assert summarize(again).level == pytest.approx(0.0025)
