"""The headline: who stands for a family, what its interval holds, and its words."""

import math

import pytest

from ringside.stats.contest import Contest, contest, sides
from ringside.stats.figure import Figure, Interval
from ringside.stats.final import Pair

FAMILIES = {"m": "tf", "w": "tf", "h": "hvd", "i": "hvd"}


def pairs_of(**logs: float) -> dict[frozenset[str], Pair]:
    """Pairs of these arms, each within ±3 %."""
    found = {}
    for first in logs:
        for second in logs:
            if first < second:
                ratio = math.exp(logs[first] - logs[second])
                figure = Figure(ratio, interval=Interval(ratio / 1.03, ratio * 1.03), n=3)
                found[frozenset((first, second))] = Pair(first, second, figure)
    return found


def judged(first: str, second: str, **logs: float) -> Contest:
    """The headline of contenders, each side in the order of its letters."""
    return contest(2, tuple(first), tuple(second), pairs_of(**logs))


def test_sides_are_the_families_fastest_first() -> None:
    """Of one family alone, its two fastest arms; of one arm, none."""
    rates = {"m": 1.0, "w": 1.1, "h": 1.05}

    assert sides({k: FAMILIES[k] for k in rates}, rates) == (("w", "m"), ("h",))
    assert sides({"m": "tf", "w": "tf"}, rates) == (("w",), ("m",))
    assert sides({"m": "tf"}, rates) is None


def test_every_contender_of_the_one_must_be_faster() -> None:
    """The interval holds those of all pairs; the ratio is that of the fastest of each."""
    found = judged("mw", "h", m=0.20, w=0.22, h=0.0)

    assert (found.word, found.first, found.second) == ("faster", ("w", "m"), ("h",))
    assert found.ratio.value == pytest.approx(math.exp(0.22))
    assert found.ratio.interval is not None
    assert found.ratio.interval.low == pytest.approx(math.exp(0.20) / 1.03)
    assert found.ratio.interval.high == pytest.approx(math.exp(0.22) * 1.03)


def test_one_contender_that_is_not_faster_keeps_the_claim_back() -> None:
    """m alone would be faster than h; w, which does not differ from m, is not."""
    found = judged("mw", "h", m=0.05, w=0.03, h=0.01)

    assert found.word == "no difference"
    assert found.most == pytest.approx(math.exp(0.04) * 1.03 - 1)


def test_a_contender_that_is_slower_than_its_own_family_does_not_stand_for_it() -> None:
    """The final tells w apart from m, so h is held against m alone."""
    found = judged("mw", "h", m=0.20, w=0.0, h=0.1)

    assert (found.word, found.first) == ("faster", ("m",))


@pytest.mark.parametrize(("ahead", "word"), [(0.0, "no difference"), (0.1, "faster")])
def test_words(ahead: float, word: str) -> None:
    """Of two arms within ±3 %; the faster family comes first."""
    found = judged("m", "h", m=0.0, h=ahead)

    assert found.word == word
    assert ahead == 0.0 or found.first == ("h",)


def test_cannot_tell_is_left_for_wide_intervals() -> None:
    """1 is within, and so is a difference of more than 10 %."""
    wide = Figure(1.05, interval=Interval(0.94, 1.18), n=3)
    none = Figure(1.05, "2 launches: too few", n=2)
    names = frozenset("mh")

    found = contest(2, ("m",), ("h",), {names: Pair("m", "h", wide)})

    assert (found.word, round(found.most, 2)) == ("cannot tell", 0.18)
    assert contest(2, ("m",), ("h",), {names: Pair("m", "h", none)}).word == "no verdict"
    assert contest(2, ("m",), ("h",), {}).word == "no verdict"
