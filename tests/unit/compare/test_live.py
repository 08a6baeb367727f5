"""A live round: how many passes it has, and what does not fit into memory."""

from pathlib import Path
from typing import Any

import psutil
import pytest

from launch import make_plan
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
from ringside_core.specs import Load, RefusalError
from tests.unit.compare.made import comparison_of
from tests.unit.stats.factory import record, run_of, spec_of

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


def test_a_training_that_is_too_short_has_one_pass(tmp_path: Path) -> None:
    """It still runs to its end."""
    assert number_of_passes([begun(tmp_path / "a", updates=20, warm=11, update_s=0.002)]) == 1


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
