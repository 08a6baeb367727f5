"""The budget: what flags ask for, when it is too short, when a final ends, and blocks in it."""

import itertools
from pathlib import Path
from typing import Any

import psutil
import pytest

from launch import make_plan
from ringside.cli.compare import asked_for
from ringside.comparison.budget import (
    order_of,
    parse_duration,
    refuse_long_final,
    refuse_too_short,
    why_end,
)
from ringside.comparison.live import (
    BLOCK_S,
    LEAST_COUNTED,
    LiveRun,
    refuse_without_memory,
    updates_of_a_block,
)
from ringside.stats.rounds import launches_of, others_share
from ringside_core.specs import Asked, Comparison, Division, Load, RefusalError
from tests.unit.compare.made import comparison_of
from tests.unit.stats.factory import arm_of, record, run_of, spec_of

MANY = tuple(arm_of("horovod", n) for n in range(1, 7))


def test_the_order_of_a_launch_follows_from_its_number_and_the_seed() -> None:
    """Every arm once, and in each launch another order; the same again for who resumes."""
    by_launch = [order_of(MANY, number, seed=3) for number in range(5)]

    assert all(len(one) == 6 and set(one) == set(MANY) for one in by_launch)
    assert all(one != other for one, other in itertools.combinations(by_launch, 2))
    assert order_of(MANY, 4, seed=3) == by_launch[4] != order_of(MANY, 4, seed=5)


DIVISION = Division(
    screening_s=60, launches=3, phase_s=40.0, start_s=20.0, pass_s=2.0, scatter=0.05
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("1h", 3600), ("1h30m", 5400), ("0.5m", 30)]
)
def test_a_budget_has_a_unit(text: str, seconds: float) -> None:
    """Seconds, minutes and hours, also together."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("flags", "asked"),
    [
        ({}, Asked(budget_s=255.0)),
        ({"budget": "10m"}, Asked(budget_s=600.0)),
        ({"launches": 5, "all_arms": True}, Asked(launches=5, all_arms=True)),
    ],
)
def test_what_flags_ask_for(flags: dict[str, Any], asked: Asked) -> None:
    """The default budget leaves time for certificates within six minutes."""
    assert asked_for(**flags) == asked


def test_a_budget_that_the_screening_would_eat() -> None:
    """It may take half of it; the refusal names the least that would do, in one line."""
    refuse_too_short(Asked(budget_s=120.0), 60.0)
    refuse_too_short(Asked(budget_s=120.0, launches=3), 1000.0)  # who counts launches waits

    with pytest.raises(RefusalError) as refusal:
        refuse_too_short(Asked(budget_s=120.0), 61.0)

    assert str(refusal.value) == (
        "The budget is too short for the screening, in which every arm is started once. "
        "Received: --budget 120s. The least that would do: --budget 130s. Or name fewer --backends."
    )


def test_a_budget_that_a_final_of_all_arms_would_exceed() -> None:
    """By a quarter at most: nine arms are not started three times in two minutes."""
    refuse_long_final(Asked(budget_s=120.0), 18.0, 44.0)  # 18 + 3 · 44 = 150
    refuse_long_final(Asked(budget_s=120.0, launches=3), 60.0, 1000.0)

    with pytest.raises(RefusalError) as refusal:
        refuse_long_final(Asked(budget_s=120.0), 60.0, 100.0)

    assert str(refusal.value) == (
        "The budget is too short for 3 launches of all arms. Received: --budget 120s. The least "
        "that would do: --budget 290s. Or name fewer --backends."
    )


def made(launches: int, *, spent_s: float = 0.0, **changes: Any) -> Comparison:
    """Behind the screening and so many launches of the final, of mirrored and serial."""
    comparison = comparison_of("mirrored").replace(
        division=DIVISION, spent_s=spent_s, asked=Asked(), **changes
    )
    finalists = tuple(arm.label for arm in comparison.arms)
    comparison = comparison.replace(finalists=finalists)
    for number in range(launches + 1):
        for arm in comparison.arms_of(number):
            spec = comparison.spec_of(arm, number)
            run = run_of(arm, [record(spec, [])], number=number, position=len(comparison.runs))
            comparison = comparison.with_run(run)
    return comparison


def disturbed(launches: int) -> Comparison:
    """Six are planned; beside those behind the third other programs run."""
    found = made(launches).replace(division=DIVISION.replace(launches=6))
    busy = Load(wall_s=10.0, cores=2, others_cpu_s=9.0, steal_cpu_s=1.0)
    runs = [run.replace(load=busy) if run.round > 3 else run for run in found.runs]
    return found.replace(runs=tuple(runs))


@pytest.mark.parametrize(
    ("comparison", "words"),
    [
        (comparison_of("mirrored"), ""),
        (made(0), ""),
        (made(2), ""),
        (made(2, spent_s=900.0), ""),  # three are made whatever they cost
        (made(3), "All 3 launches of the final were made."),
        (made(3).replace(division=DIVISION.replace(launches=9)), ""),
        (
            made(3, spent_s=230.0).replace(division=DIVISION.replace(launches=9)),
            "Another launch would not fit into the budget of 4.2 min.",
        ),
        (disturbed(3 + 8), ""),  # made again, but not for ever
        (disturbed(3 + 9), "9 launches of 12 were disturbed and left out."),
        (made(0).replace(division=None, asked=Asked(launches=0)), "No final was asked for."),
        (made(0).replace(division=None), "No two contenders are there."),
    ],
)
def test_when_it_ends(comparison: Comparison, words: str) -> None:
    """After the launches that were planned, or when another one would exceed the budget."""
    assert why_end(comparison, launches_of(comparison)) == words


GIB = 2**30


def begun(run_dir: Path, *, update_s: float, **spec: Any) -> LiveRun:
    """A run that has made its start."""
    run = LiveRun("made up", make_plan(spec_of("serial", **spec), run_dir=run_dir))
    run.update_s = update_s
    return run


def test_a_block_lasts_long_enough(tmp_path: Path) -> None:
    """In the fastest run; a slower one only has longer blocks."""
    fast = begun(tmp_path / "fast", update_s=0.002)
    slow = begun(tmp_path / "slow", update_s=0.003)

    assert updates_of_a_block([fast]) == updates_of_a_block([slow, fast]) == BLOCK_S / 0.002 + 6
    assert updates_of_a_block([slow]) == BLOCK_S / 0.003 + 6
    assert updates_of_a_block([]) == 1


def test_a_pass_does_not_wait_for_the_slowest(tmp_path: Path) -> None:
    """Two arms, 0.9 s for each on average; the block of the fastest would take a minute."""
    fast = begun(tmp_path / "fast", update_s=0.001)
    slow = begun(tmp_path / "slow", update_s=0.099)

    assert updates_of_a_block([fast, slow]) == 2 * 0.9 / 0.1


def test_every_arm_has_executions_that_count(tmp_path: Path) -> None:
    """Also one whose executions are many updates, or long: of these three are left out."""
    plain = begun(tmp_path / "plain", update_s=0.002)
    ten = begun(tmp_path / "ten", update_s=0.02, steps_per_execution=10)
    long = begun(tmp_path / "long", update_s=0.4)

    quick = begun(tmp_path / "quick", update_s=0.003, steps_per_execution=10)
    assert updates_of_a_block([plain, quick]) == BLOCK_S / 0.002 + 6
    assert updates_of_a_block([long, ten]) == (LEAST_COUNTED + 3) * 10
    assert updates_of_a_block([ten]) == (LEAST_COUNTED + 3) * 10
    assert updates_of_a_block([long]) == LEAST_COUNTED + 3


def test_arms_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the number that fits."""
    free = psutil.virtual_memory()._replace(available=10 * GIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)

    refuse_without_memory([1, 2, 3, 4], GIB)
    with pytest.raises(RefusalError, match=r"4 arms.*10240 MiB are free, so 3 arms fit.*--fresh"):
        refuse_without_memory([3, 3, 3, 3], GIB)


def test_a_live_launch_is_never_left_out() -> None:
    """What disturbs a pass disturbs all of its arms; how much is still said."""
    busy = Load(wall_s=10.0, cores=2, others_cpu_s=9.0, steal_cpu_s=1.0)
    comparison = made(1).replace(live=True)
    runs = tuple(run.replace(load=busy) for run in comparison.runs)

    found = launches_of(comparison.replace(runs=runs))

    assert (found.final, found.left_out, dict(found.disturbed)) == ((1,), frozenset(), {})
    assert others_share(comparison.replace(runs=runs)) == pytest.approx(10 / 20)
