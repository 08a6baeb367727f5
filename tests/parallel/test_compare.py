"""`ringside compare`, typed: stopped by Ctrl-C and gone on with; a search for settings."""

import signal
from pathlib import Path

import pytest

from ringside.comparison.budget import order_of
from tests.parallel.typed import LIMIT_S, ended, left_of, results, started

# Two short epochs, one replica, no certificates, no final.
BRIEF = (
    *("--workload", "digits", "--epochs", "2"),
    *("--replicas", "1", "--launches", "0", "--no-verify"),
)
pytestmark = [
    pytest.mark.timeout(LIMIT_S + 60),
    pytest.mark.usefixtures("signals_heard", "warm_commands"),
]


def compared(tmp_path: Path, *flags: str) -> tuple[int, str]:
    """Exit code and output of `ringside compare`."""
    return ended(started(tmp_path, *flags))


def test_stopped_in_the_middle_of_a_screening_and_gone_on_with(tmp_path: Path) -> None:
    """Whole runs are kept, no process is left, the screening is completed; then it is finished.

    A live launch is kept whole or not at all: test_live.py.
    """
    folder = tmp_path / "bout"
    flags = (
        "--backends",
        "serial,mirrored",
        "--name",
        "bout",
        "--output",
        str(tmp_path),
        "--fresh",
    )
    process = started(tmp_path, *flags, *BRIEF, forks=False)
    try:
        assert process.stdout is not None
        text = ""
        while "completed in" not in text:  # the first run is over, the second one begins
            line = process.stdout.readline()
            assert line, text
            text += line
        process.send_signal(signal.SIGINT)
        text += process.communicate(timeout=LIMIT_S)[0]
    finally:
        process.kill()
        process.communicate()

    assert process.returncode == 130, text
    assert f"--resume {folder}" in text
    assert "Traceback" not in text
    assert left_of(folder) == []
    before = results(folder)
    assert len(before.runs) in (1, 2)
    assert before.ended_because == ""

    code, said = compared(tmp_path, "--resume", str(folder))

    assert code == 0, said
    after = results(folder)
    assert after.ended_because
    assert after.runs[: len(before.runs)] == before.runs
    order = [arm.label for arm in order_of(after.arms_of(0), 0, after.seed)]
    assert [run.arm for run in after.runs if run.round == 0] == order
    assert {(run.round, run.spec.seed) for run in after.runs} == {
        (number, 1 + number) for number in range(after.rounds)
    }
    assert all(run.load is not None for run in after.runs)
    assert (folder / "report.html").is_file()

    code, said = compared(tmp_path, "--resume", str(folder))

    assert code == 2
    assert "This comparison is finished." in said


@pytest.mark.nightly
def test_tuned(tmp_path: Path) -> None:
    """Two trials for each arm; what is chosen runs beside the arms as they are."""
    code, said = compared(
        tmp_path, "--backends", "mirrored", "--tuned", "--trials", "2",
        "--name", "bout", "--output", str(tmp_path), *BRIEF,
    )  # fmt: skip

    assert code == 0, said
    comparison = results(tmp_path / "bout")
    assert [trial.tuned_from for trial in comparison.trials] == ["serial ×1"] * 2 + [
        "mirrored ×1"
    ] * 2
    assert [trial.run.position for trial in comparison.trials] == [0, 1, 2, 3]
    chosen = [trial for trial in comparison.trials if trial.chosen]
    assert [trial.tuned_from for trial in chosen] == ["serial ×1", "mirrored ×1"]
    tuned = {trial.tuned_from for trial in chosen if trial.arm.label != trial.tuned_from}
    assert {arm.tuned_from for arm in comparison.arms if arm.tuned_from} == tuned
    assert {run.arm for run in comparison.runs} == {
        arm.label for arm in comparison.arms if not arm.twin_of
    }
