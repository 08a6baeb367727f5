"""What attempts of one run leave, and what is counted of them."""

import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from launch import attempts
from launch.attempts import Attempts, attempt, set_aside
from launch.interrupts import Interrupts
from launch.journal import set_record_aside
from ringside_core.specs import AUTO, Execution, Outcome, RefusalError, RunSpec
from tests.unit.stats.factory import FAILED, spec_of

SPEC = spec_of("serial")


@pytest.fixture(autouse=True)
def nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands in the way of a start is gone at once."""
    monkeypatch.setattr(attempts, "NOT_YET_S", 0.0)


def left_by_a_run(run_dir: Path, step: int, total: int, fit: int = 1) -> None:
    """What its launcher and its process would leave."""
    for name in ("logs", "records", "progress"):
        (run_dir / name).mkdir(parents=True)
    (run_dir / "spec.json").write_text(SPEC.to_json())
    (run_dir / "progress" / "rank-0").write_text(f"1.0 {step} {total} training {fit}")


def run_of(
    run_dir: Path, ends: Sequence[tuple[Any, ...]], restarts: int
) -> tuple[Attempts, list[RunSpec]]:
    """Attempts that end so: outcome, updates made, those that there were to make, which fit."""
    specs: list[RunSpec] = []

    def start(spec: RunSpec, interrupts: Interrupts) -> Execution:
        outcome, *progress = ends[len(specs)]
        specs.append(spec)
        left_by_a_run(run_dir, *progress)
        (run_dir / "checkpoint.npz").touch()
        return Execution(outcome=outcome, records=(), wall_s=1.0)

    return attempt(SPEC, run_dir, start, restarts=restarts, say=lambda text: None)[1], specs


def test_updates_made_again_are_counted(tmp_path: Path) -> None:
    """Of 30: 12 made, 20 left after the restart; one that never trained; then 20 to the end."""
    ends = [(FAILED, 12, 30), (FAILED, 0, 0), (Outcome(kind="completed"), 20, 20)]

    history, specs = run_of(tmp_path, ends, restarts=5)

    assert str(history) == "3 attempts, 2 updates made again"
    assert [spec.resume_from for spec in specs] == [None, AUTO, AUTO]
    assert sorted(one.name for one in (tmp_path / "attempts").iterdir()) == ["1", "2"]
    assert (tmp_path / "attempts" / "1" / "spec.json").exists()
    assert (tmp_path / "checkpoint.npz").exists()


@pytest.mark.parametrize(
    ("outcome", "count"), [(FAILED, 3), (Outcome(kind="refused", reason="bad"), 1)]
)
def test_it_does_not_start_for_ever(tmp_path: Path, outcome: Outcome, count: int) -> None:
    """So often as is asked for; a refused run would be refused again."""
    _, specs = run_of(tmp_path, [(outcome, 0, 0)] * 4, restarts=2)

    assert len(specs) == count


def test_a_refusal_after_a_failure_is_tried_again(tmp_path: Path) -> None:
    """A host that was lost is not ready yet."""
    not_ready = Outcome(kind="refused", reason="b is not ready")
    ends = [(FAILED, 12, 30), (not_ready, 0, 0), (Outcome(kind="completed"), 20, 20)]

    history, _ = run_of(tmp_path, ends, restarts=2)

    assert history.attempts[-1].outcome.completed


def test_what_is_still_in_the_way_does_not_use_up_the_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk ends each start within a second; so the third waits. No other start does."""
    waited: list[float] = []
    monkeypatch.setattr(attempts, "wait", lambda seconds, interrupts: waited.append(seconds))

    run_of(tmp_path, [(FAILED, 12, 30), (FAILED, 0, 0), (FAILED, 4, 20), (FAILED, 1, 16)], 3)

    assert waited == [attempts.NOT_YET_S]


def test_a_run_goes_on_from_no_checkpoint_but_its_own(tmp_path: Path) -> None:
    """One that lay there before is another run's; a damaged one that was put aside is none."""
    (tmp_path / "checkpoint.npz").touch()
    os.utime(tmp_path / "checkpoint.npz", (1, 1))
    specs: list[RunSpec] = []

    def start(spec: RunSpec, interrupts: Interrupts) -> Execution:
        specs.append(spec)
        left_by_a_run(tmp_path, 1, 2)
        if len(specs) == 2:
            (tmp_path / "checkpoint.npz").touch()
        return Execution(outcome=FAILED, records=(), wall_s=1.0)

    attempt(SPEC, tmp_path, start, restarts=2, say=lambda text: None)

    assert [spec.resume_from for spec in specs] == [None, None, AUTO]


def test_an_attempt_is_set_aside_once_it_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full when half of it has moved: the rest follows it."""
    rename, tries = Path.rename, list[str]()

    def sometimes(self: Path, target: Path) -> Path:
        tries.append(self.name)
        if len(tries) in (2, 3):
            raise OSError(errno.ENOSPC, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", sometimes)

    history, _ = run_of(
        tmp_path, [(FAILED, 12, 30), (Outcome(kind="completed"), 18, 18)], restarts=2
    )

    assert str(history) == "2 attempts, 0 updates made again"
    (aside,) = (tmp_path / "attempts").iterdir()
    kept = sorted(one.name for one in aside.iterdir())
    assert kept == ["logs", "progress", "records", "spec.json"]


def test_records_of_later_fits_are_set_aside(tmp_path: Path) -> None:
    """Their checkpoints stay where they are."""
    left_by_a_run(tmp_path, 1, 2)
    (tmp_path / "fit-2" / "records").mkdir(parents=True)
    (tmp_path / "fit-2" / "checkpoint.npz").touch()

    set_aside(tmp_path)

    assert (tmp_path / "attempts" / "1" / "fit-2" / "records").is_dir()
    assert [one.name for one in (tmp_path / "fit-2").iterdir()] == ["checkpoint.npz"]


def test_a_run_that_goes_on_is_left_alone(tmp_path: Path) -> None:
    """Its launcher holds the lock of its spec; the kernel lets go of it when that ends."""
    left_by_a_run(tmp_path, 1, 2)
    with (tmp_path / "spec.json").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(RefusalError, match="in which another launcher works"):
            set_aside(tmp_path)

    assert set_aside(tmp_path) == 1
    assert set_aside(tmp_path) is None


def test_a_task_keeps_its_earlier_records(tmp_path: Path) -> None:
    """Of a pod that is restarted in its place, and has no launcher."""
    for number in (1, 2):
        (tmp_path / "records").mkdir(exist_ok=True)
        (tmp_path / "records" / "rank-0.json").write_text(f"{number}")
        (tmp_path / "records" / "rank-1.json").write_text("of another")
        set_record_aside(tmp_path, "rank-0")

    kept = [tmp_path / "attempts" / name / "records" / "rank-0.json" for name in ("1", "2")]
    assert [file.read_text() for file in kept] == ["1", "2"]
    assert (tmp_path / "records" / "rank-1.json").exists()
