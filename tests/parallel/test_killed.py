"""kill -9 and SIGSTOP of real processes of real arms: a named outcome, in time, and none left.

The death of a launcher leaves processes that need not train: launch/test_execute.py and
launch/test_signals.py kill each launcher of a fake train.py. Here only Ctrl-C comes to one.
"""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.nightly import nightly
from tests.parallel.typed import starting
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
START_LIMIT_S = 240
END_LIMIT_S = 60  # of which the launcher may take its deadline
DEADLINE_S = 8
pytestmark = [
    pytest.mark.timeout(START_LIMIT_S + END_LIMIT_S + 60),
    pytest.mark.usefixtures("signals_heard", "quick_horovodrun"),
]


class Launched:
    """`ringside launch` of an endless run, in a process of its own."""

    def __init__(self, run_dir: Path, backend: str, *flags: str) -> None:
        self.run_dir = run_dir
        self.process = starting(
            "launch", "--backend", backend, "--workload", "digits", "--epochs", "100000",
            "--save", "record", "--run-dir", str(run_dir), "--deadline", str(DEADLINE_S), *flags,
        )  # fmt: skip

    def wait_until_training(self, tasks: list[str]) -> None:
        """Return when every one of the tasks has done some steps."""

        def training() -> bool:
            assert self.process.poll() is None, self.process.communicate()[0]
            return all(self._step(task) > 5 for task in tasks)

        wait_until(training, seconds=START_LIMIT_S)

    def _step(self, task: str) -> int:
        try:
            return int((self.run_dir / "progress" / task).read_text().split()[1])
        except (OSError, IndexError):
            return -1

    def run_id(self) -> str:
        """What marks every process of the run."""
        for child in psutil.Process(self.process.pid).children(recursive=True):
            try:
                return child.environ()["RINGSIDE_RUN_ID"]
            except (psutil.Error, KeyError):
                continue
        raise AssertionError("no process of the run was found")

    def close(self) -> None:
        """End it for good."""
        self.process.kill()
        self.process.communicate()


def members(run_id: str) -> dict[int, str]:
    """Living processes of a run: pid → program, whole command and TF_CONFIG."""
    found = {}
    for process in psutil.process_iter():
        try:
            env = process.environ()
            if env.get("RINGSIDE_RUN_ID") == run_id and process.status() != "zombie":
                words = [f"<{process.name()}>", *process.cmdline(), env.get("TF_CONFIG", "")]
                found[process.pid] = " ".join(words)
        except psutil.Error:
            continue
    return found


def pid_of(run_id: str, *words: str) -> int:
    """The process of a run whose command or TF_CONFIG holds all the words."""
    pids = [p for p, text in members(run_id).items() if all(word in text for word in words)]
    assert pids, (words, members(run_id))
    return min(pids)


def ended_by(
    act: Callable[["subprocess.Popen[str]", str], object], run: Launched, tasks: list[str]
) -> tuple[int, str]:
    """Exit code and output of a run that this is done to once it trains; nothing of it is left."""
    try:
        run.wait_until_training(tasks)
        run_id = run.run_id()
        act(run.process, run_id)
        said = run.process.communicate(timeout=END_LIMIT_S)[0]
    finally:
        run.close()
    wait_until(lambda: not members(run_id), seconds=10)
    return run.process.returncode, said


TASK = "<python"  # a task itself, not horovodrun or mpirun with its command as arguments
VICTIMS = [
    nightly("mirrored", ["--replicas", "2"], ["rank-0"], (TASK, "train.py")),
    nightly("multi_worker_mirrored", ["--replicas", "2"], ["worker-0"], (TASK, '"index": 1}')),
    nightly("multi_worker_mirrored", ["--replicas", "2"], ["worker-0"], (TASK, '"index": 0}')),
    nightly("parameter_server", [], ["chief-0"], (TASK, '"type": "ps"')),
    nightly("parameter_server", [], ["chief-0"], (TASK, '"type": "worker"')),
    nightly("parameter_server", [], ["chief-0"], (TASK, '"type": "chief"')),
    ("horovod", ["--replicas", "2"], ["rank-0", "rank-1"], (TASK, "train.py")),
    nightly(
        "horovod",
        ["--replicas", "2", "--launcher", "mpirun"],
        ["rank-0", "rank-1"],
        (TASK, "train.py"),
    ),
]


@pytest.mark.parametrize(("backend", "flags", "tasks", "victim"), VICTIMS, ids=str)
def test_kill_9_of_any_process_ends_the_run(
    tmp_path: Path, backend: str, flags: list[str], tasks: list[str], victim: tuple[str, ...]
) -> None:
    """The launcher says `failed` or `hung` and exits with 1; no process of the run is left."""
    code, said = ended_by(
        lambda _, run_id: os.kill(pid_of(run_id, *victim), signal.SIGKILL),
        Launched(tmp_path / "run", backend, *flags),
        tasks,
    )

    assert code == 1, said
    assert said.count("failed(") + said.count("hung(") == 1, said
    assert not list((tmp_path / "run").rglob("__autograph*"))


@pytest.mark.parametrize(
    ("backend", "flags"),
    [
        nightly("mirrored", ["--replicas", "2"]),
        ("horovod", ["--replicas", "2", "--launcher", "mpirun"]),
    ],
)
def test_a_frozen_rank_is_a_hung_run(tmp_path: Path, backend: str, flags: list[str]) -> None:
    """Open MPI waits for a stopped rank for ever; the deadline does not."""
    code, said = ended_by(
        lambda _, run_id: os.kill(pid_of(run_id, TASK, "train.py"), signal.SIGSTOP),
        Launched(tmp_path / "run", backend, *flags),
        ["rank-0"],
    )

    assert code == 1, said
    assert f"hung({DEADLINE_S} s)" in said


def test_the_launcher_takes_its_processes_with_it(tmp_path: Path) -> None:
    """Ctrl-C of `ringside` leaves nothing behind, though TensorFlow hears no signal in a step."""
    code, said = ended_by(
        lambda process, _: process.send_signal(signal.SIGINT),
        Launched(tmp_path / "run", "multi_worker_mirrored", "--replicas", "2"),
        ["worker-0"],
    )

    assert code != 0
    assert "Traceback" not in said
