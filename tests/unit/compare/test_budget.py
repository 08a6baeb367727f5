"""When an experiment ends, and what a person may type for that."""

from typing import Any

import pytest

from ringside.compare.budget import (
    State,
    parse_duration,
    parse_width,
    rounds_asked,
    time_left_s,
    why_end,
)
from ringside_core.specs import RefusalError, Rounds

ASKED = Rounds(least=3, most=100, interval_width=0.05, budget_s=600.0)
COUNTED = Rounds(least=3, most=6)


def state(made: int, width: float | None = None, **changes: Any) -> State:
    """After so many rounds of 60 s, none of them disturbed."""
    fields: dict[str, Any] = {
        "made": made,
        "undisturbed": made,
        "widest": None if width is None else ("horovod ×2 against mirrored ×2", width),
        "spent_s": 60.0 * made,
        "round_s": 60.0,
    }
    return State(**{**fields, **changes})


@pytest.mark.parametrize(
    ("text", "share"), [("2%", 0.02), ("2 %", 0.02), ("0.02", 0.02), ("12.5%", 0.125)]
)
def test_a_precision_is_a_share(text: str, share: float) -> None:
    """With or without the percent sign."""
    assert parse_width(text) == pytest.approx(share, abs=1e-15)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2", "Did you mean 2%"),
        ("0", "at least 0.01 %"),
        ("100%", "below 100 %"),
        ("-1%", "at least 0.01 %"),
        ("nan", "at least 0.01 %"),
        ("1e-200", "at least 0.01 %"),
        ("0.009%", "at least 0.01 %"),
        ("2%%", "Example"),
        ("few", "Example"),
        ("", "Example"),
        ("float64", "Example: --interval-width 2%"),
    ],
)
def test_no_precision(text: str, words: str) -> None:
    """One message says what to type."""
    with pytest.raises(RefusalError, match=words):
        parse_width(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("1h", 3600), ("1h30m", 5400), ("0.5m", 30)]
)
def test_a_budget_has_a_unit(text: str, seconds: float) -> None:
    """Seconds, minutes and hours, also together."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["10", "0s", "m", "10 apples", "-5m", "", "1d", "9" * 400 + "h"])
def test_no_budget(text: str) -> None:
    """A number without a unit could be anything."""
    with pytest.raises(RefusalError, match="Examples: --budget 90s"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("flags", "asked"),
    [
        ({}, Rounds(least=3, most=100, interval_width=0.05, budget_s=300)),
        (
            {"interval_width": "2%", "budget": "10m"},
            Rounds(most=100, interval_width=0.02, budget_s=600),
        ),
        ({"rounds": 5}, Rounds(least=5, most=10)),
        ({"verify": False}, Rounds(least=3, most=6)),
        ({"verify": False, "budget": "1h"}, Rounds(least=3, most=6, budget_s=3600)),
    ],
)
def test_what_flags_ask_for(flags: dict[str, Any], asked: Rounds) -> None:
    """Rounds are counted, or made until something is reached."""
    given = {"rounds": None, "interval_width": None, "budget": None, "verify": True, **flags}

    assert rounds_asked(**given) == asked


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"rounds": 5, "interval_width": "2%"}, "--rounds 5 with --interval-width"),
        ({"rounds": 5, "budget": "2m"}, "--rounds 5 with --budget"),
        ({"interval_width": "2%", "verify": False}, "with --no-verify"),
    ],
)
def test_flags_that_contradict(flags: dict[str, Any], words: str) -> None:
    """Neither wins in silence."""
    given = {"rounds": None, "interval_width": None, "budget": None, "verify": True, **flags}

    with pytest.raises(RefusalError, match=words):
        rounds_asked(**given)


@pytest.mark.parametrize(
    ("asked", "now", "words"),
    [
        (ASKED, state(2, 0.001), ""),  # too few rounds to believe it
        (ASKED, state(7, 0.06), ""),
        (ASKED, state(7, 0.05), "at most 5.0 % wide"),
        (ASKED, state(4, 0.001), ""),  # whoever stops at the first lucky width is wrong too often
        (ASKED, state(6, 0.04, undisturbed=4), ""),  # of four rounds, too
        (ASKED, state(10, 0.06), "still 6.0 %; 5.0 % was asked for"),  # the eleventh ends at 660 s
        (ASKED, state(9, 0.06), ""),  # the tenth ends at 600 s
        (ASKED, state(2, 0.06, spent_s=900.0), ""),  # the least are made all the same
        (ASKED, state(3), "no interval to wait for"),
        (ASKED, state(4, 0.04, undisturbed=2), ""),  # precise only because of disturbed rounds
        (
            ASKED,
            state(7, 0.04, undisturbed=2),
            "at most 5.0 % wide",
        ),  # as many repeats as asked for
        (ASKED, state(100, 0.06, spent_s=1.0, round_s=0.01), "the most that are made"),
        (ASKED, state(10, float("inf")), "no interval yet"),
        (COUNTED, state(2), ""),
        (COUNTED, state(3), "All rounds that were asked for were made."),
        (COUNTED, state(3, undisturbed=2), ""),
        (COUNTED, state(4, undisturbed=3), "1 more was disturbed"),
        (COUNTED, state(6, undisturbed=0), "6 were disturbed"),
        (COUNTED, state(5, undisturbed=3), "2 more were disturbed"),
        (COUNTED.replace(least=1, most=2), state(2, undisturbed=1), "1 more was disturbed"),
        (
            Rounds(least=1, most=1, interval_width=0.05),
            state(1, 0.5),
            "1 round is the most that is",
        ),
        (COUNTED.replace(budget_s=200.0), state(3, undisturbed=0), "would not fit into the budget"),
    ],
)
def test_when_it_ends(asked: Rounds, now: State, words: str) -> None:
    """After the least rounds: at the precision, or when another round would exceed the budget."""
    why = why_end(asked, now)

    assert words in why
    assert bool(why) == bool(words)


@pytest.mark.parametrize(
    ("asked", "now", "seconds"),
    [
        (ASKED, state(1), 120.0),
        (ASKED, state(4, 0.10), 360.0),  # twice too wide: 16 rounds, and the budget ends before
        (ASKED, state(6, 0.06), 180.0),  # 6 · 1.44 = 8.64
        (ASKED, state(4, 0.01), 60.0),  # precise, and one round too few to believe it
        (ASKED, state(1, spent_s=700.0, round_s=700.0), 1400.0),
        (COUNTED, state(2), 60.0),
        (COUNTED, state(3, undisturbed=2), 60.0),
    ],
)
def test_time_left(asked: Rounds, now: State, seconds: float) -> None:
    """Intervals narrow with the root of the rounds; the budget ends it, after the least rounds."""
    assert time_left_s(asked, now) == pytest.approx(seconds)
