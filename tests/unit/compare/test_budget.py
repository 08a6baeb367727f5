"""When an experiment ends, what a person may type for that, and how live rounds are divided."""

from pathlib import Path
from typing import Any

import psutil
import pytest

from launch import make_plan
from ringside.compare.budget import (
    State,
    parse_duration,
    parse_width,
    rounds_asked,
    why_end,
)
from ringside.compare.live import (
    ENOUGH_PASSES,
    LEAST_BLOCK_S,
    LEAST_COUNTED,
    MOST_PASSES,
    LiveRun,
    number_of_passes,
    refuse_without_memory,
)
from ringside.stats.rounds import others_share, rounds_used
from ringside_core.specs import Load, RefusalError, Rounds
from tests.unit.compare.made import comparison_of
from tests.unit.stats.factory import record, run_of, spec_of

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
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("1h", 3600), ("1h30m", 5400), ("0.5m", 30)]
)
def test_a_budget_has_a_unit(text: str, seconds: float) -> None:
    """Seconds, minutes and hours, also together."""
    assert parse_duration(text) == seconds


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


GIB = 2**30


def begun(run_dir: Path, *, updates: int, warm: int, update_s: float, **spec: Any) -> LiveRun:
    """A run that has made its start."""
    run = LiveRun("made up", make_plan(spec_of("serial", **spec), run_dir=run_dir))
    run.total, run.warm, run.update_s = updates, warm, update_s
    return run


def test_a_block_lasts_long_enough(tmp_path: Path) -> None:
    """In the fastest run; a slower one only has longer blocks."""
    fast = begun(tmp_path / "fast", updates=5100, warm=100, update_s=0.002)
    slow = begun(tmp_path / "slow", updates=5100, warm=100, update_s=0.02)
    short = begun(tmp_path / "short", updates=1100, warm=100, update_s=0.002)

    each = LEAST_BLOCK_S / 0.002

    assert number_of_passes([fast]) == number_of_passes([slow, fast]) == 5000 // each
    assert number_of_passes([short]) == ENOUGH_PASSES


def test_every_arm_has_executions_that_count(tmp_path: Path) -> None:
    """Also one whose executions are many updates."""
    plain = begun(tmp_path / "plain", updates=1100, warm=100, update_s=0.02)
    ten = begun(tmp_path / "ten", updates=1100, warm=100, update_s=0.02, steps_per_execution=10)

    assert number_of_passes([plain]) == min(MOST_PASSES, 1000 // (6 + LEAST_COUNTED))
    assert number_of_passes([plain, ten]) == 1000 // (10 * (6 + LEAST_COUNTED))


def test_arms_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the number that fits."""
    free = psutil.virtual_memory()._replace(available=10 * GIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)

    refuse_without_memory([1, 2, 3, 4], GIB)
    with pytest.raises(RefusalError, match=r"5 arms.*10240 MiB are free, so 4 arms fit.*--fresh"):
        refuse_without_memory([3, 3, 3, 3], GIB, begun=1)


def test_a_live_round_is_never_left_out() -> None:
    """What disturbs a pass disturbs all of its arms; how much is still said."""
    busy = Load(wall_s=10.0, cores=2, others_cpu_s=9.0, steal_cpu_s=1.0)
    comparison = comparison_of("serial")
    run = run_of(comparison.arms[0], [record(spec_of("serial"), [])], load=busy)
    comparison = comparison.replace(live=True, runs=(run,), rounds=1)

    assert rounds_used(comparison).used == (0,)
    assert not rounds_used(comparison).disturbed
    assert others_share(comparison) == pytest.approx(10 / 20)
