"""Launcher, rank or link lost: a named outcome, and no process of the run on any host."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from lab import Lab

ROOT = Path(__file__).resolve().parents[2]
START_LIMIT_S = 240  # of a few seconds: this machine may be busy
END_LIMIT_S = 90
KEEPER_LIMIT_S = 30  # 15 s of silence, and a busy machine
pytestmark = pytest.mark.timeout(START_LIMIT_S + END_LIMIT_S + 90)
STACKS = {
    "multi_worker_mirrored": ("worker-0", "worker-1"),
    "horovod": ("rank-0", "rank-1"),
    "horovod --launcher mpirun": ("rank-0", "rank-1"),
}


class Launched:
    """`ringside launch` of an endless run on two hosts of the lab."""

    def __init__(self, stack: str, run_dir: Path, hostfile: Path) -> None:
        self.stack = stack
        self.run_dir = run_dir
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "cli.main", "launch", "--backend", *stack.split()),
                *("--replicas", "2", "--hostfile", str(hostfile), "--epochs", "100000"),
                *("--save", "record", "--run-dir", str(run_dir), "--deadline", "120"),
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def trains(self) -> bool:
        """Whether every task has done some steps; fails if the run has ended."""
        assert self.process.poll() is None, self.process.communicate()[0]
        try:
            files = [self.run_dir / "progress" / task for task in STACKS[self.stack]]
            return all(int(file.read_text().split()[1]) > 5 for file in files)
        except (OSError, IndexError):
            return False

    def run_id(self) -> str:
        """What marks every process of the run."""
        for child in psutil.Process(self.process.pid).children(recursive=True):
            try:
                return child.environ()["RINGSIDE_RUN_ID"]
            except (psutil.Error, KeyError):
                continue
        raise AssertionError("no process of the run was found")


def members(run_id: str) -> dict[int, str]:
    """Living processes of a run on all hosts and here: this machine sees them all."""
    found = {}
    for process in psutil.process_iter():
        try:
            carries = process.environ().get("RINGSIDE_RUN_ID") == run_id
            words = process.cmdline()
            if (carries or run_id in words) and process.status() != "zombie":
                found[process.pid] = " ".join([f"<{process.name()}>", *words])
        except psutil.Error:
            continue
    return found


def on_host(lab: Lab, name: str, pid: int) -> bool:
    """Whether a process is one of this host's: it is in the host's network."""
    own = Path(f"/run/netns/{lab.host(name).namespace}").stat().st_ino
    return Path(f"/proc/{pid}/ns/net").stat().st_ino == own


def left_after(run_id: str, seconds: float) -> dict[int, str]:
    """What is left of a run when nothing is, or after so long."""
    give_up = time.monotonic() + seconds
    while left := members(run_id):
        if time.monotonic() > give_up:
            break
        time.sleep(0.2)
    return left


@pytest.fixture
def training(lab: Lab, tmp_path: Path) -> Iterator[Callable[[str], Launched]]:
    """A run on the first two hosts of the lab, in training when returned."""
    hostfile = tmp_path / "two"
    hostfile.write_text("".join(f"{host.name} slots=1\n" for host in lab.hosts[:2]))
    runs: list[Launched] = []

    def start(stack: str) -> Launched:
        run = Launched(stack, tmp_path / "run", hostfile)
        runs.append(run)
        give_up = time.monotonic() + START_LIMIT_S
        while not run.trains():
            assert time.monotonic() < give_up, "no training within the limit"
            time.sleep(0.2)
        return run

    yield start
    for run in runs:
        with run.process:
            run.process.kill()


@pytest.mark.parametrize("stack", STACKS)
def test_a_killed_launcher(stack: str, training: Callable[[str], Launched], lab: Lab) -> None:
    """kill -9 of `ringside` leaves nobody on any host, whichever launcher started the ranks."""
    run = training(stack)
    run_id = run.run_id()
    started = members(run_id)

    run.process.kill()

    assert any(on_host(lab, lab.hosts[1].name, pid) for pid in started), started
    assert left_after(run_id, KEEPER_LIMIT_S) == {}


@pytest.mark.parametrize("stack", STACKS)
def test_a_killed_rank(stack: str, training: Callable[[str], Launched], lab: Lab) -> None:
    """kill -9 of the rank on the second host ends the run, named; nobody is left."""
    run = training(stack)
    run_id = run.run_id()

    (victim,) = [
        pid
        for pid, text in members(run_id).items()
        if text.startswith("<python")
        and "train.py" in text
        and on_host(lab, lab.hosts[1].name, pid)
    ]
    os.kill(victim, signal.SIGKILL)
    said = run.process.communicate(timeout=END_LIMIT_S)[0]

    assert run.process.returncode == 1, said
    assert said.count("failed(") == 1 and "HostLost" not in said, said
    assert left_after(run_id, KEEPER_LIMIT_S) == {}


@pytest.mark.parametrize("stack", STACKS)
def test_a_lost_link(stack: str, training: Callable[[str], Launched], lab: Lab) -> None:
    """A host whose link is cut is named as lost; it ends the run's processes by itself."""
    run = training(stack)
    run_id = run.run_id()
    second = lab.hosts[1].name

    lab.cut(second)
    try:
        said = run.process.communicate(timeout=END_LIMIT_S)[0]
        left = left_after(run_id, KEEPER_LIMIT_S)
    finally:
        lab.mend(second)

    assert run.process.returncode == 1, said
    assert f"failed(HostLost: {second}: no answer any more" in said, said
    assert left == {}
