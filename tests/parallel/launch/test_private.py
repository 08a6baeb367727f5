"""What other users of the machine can read of a run: its command lines, here of real launchers."""

from collections.abc import Callable
from pathlib import Path

import pytest

from launch import Plan, Progress, execute

PlanOf = Callable[..., Plan]
SECRET = "hunter2 of a person who\n  'quotes' $HOME"


def read_all(name: str) -> dict[str, bytes]:
    """A file of every process on this machine, by process id."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            found[folder.name] = (folder / name).read_bytes()
        except OSError:  # it has ended meanwhile
            continue
    return {pid: text for pid, text in found.items() if text}  # a zombie has none


@pytest.mark.parametrize(
    "arm",
    [
        {"backend": "horovod"},
        {"backend": "horovod", "options": {"controller": "mpi"}},
        {"backend": "horovod", "launcher": "mpirun"},
        {"backend": "multi_worker_mirrored"},
    ],
    ids=str,
)
def test_a_secret_of_the_environment_is_in_no_command_line(
    arm: dict[str, object], plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every rank gets it all the same."""
    monkeypatch.setenv("CLOUD_KEY", SECRET)
    plan = plan_of(**arm, steps=20)
    lines: dict[str, bytes] = {}
    environments: dict[str, bytes] = {}
    modes: set[int] = set()

    def look(progress: Progress) -> None:
        lines.update(read_all("cmdline"))
        if progress.phase == "training":
            environments.update(read_all("environ"))
        modes.update(file.stat().st_mode & 0o777 for file in Path(plan.run_dir).glob(".e*"))

    execution = execute(plan, deadline_s=20, on_progress=look)

    assert execution.outcome.completed, execution
    assert [line for line in lines.values() if b"hunter2" in line] == []
    ranks = [
        environments[pid].split(b"\0")
        for pid, line in lines.items()
        if line.split(b"\0")[1:2] == [b"-u"] and pid in environments
    ]
    mark = f"RINGSIDE_RUN_ID={plan.run_id}".encode()
    assert [f"CLOUD_KEY={SECRET}".encode() in one for one in ranks if mark in one] == [True, True]
    assert modes == ({0o600} if plan.processes[0].private else set())
