"""Launcher, rank, server or link lost: a named outcome, and no process of the run on any host."""

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from ringside.lab.lab import Lab
from tests.nightly import nightly
from tests.parallel.test_killed import TASK, Launched, members

END_LIMIT_S = 90  # of which a lost host takes 15; this machine may be busy
KEEPER_LIMIT_S = 30  # 15 s of silence, and a busy machine
pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("quick_horovodrun")]
REPLICAS = ("--replicas", "2")
STACKS = {
    "multi_worker_mirrored": (REPLICAS, ("worker-0", "worker-1")),
    "horovod": (REPLICAS, ("rank-0", "rank-1")),
    "horovod --launcher mpirun": (REPLICAS, ("rank-0", "rank-1")),
    # The only one on the second host is the server.
    "parameter_server": (("--servers-on", "{second}"), ("chief-0",)),
}
Training = Callable[[str], Launched]


def all_of(run_id: str) -> dict[int, str]:
    """Living processes of a run on all hosts and here: this machine sees them all.

    With its keepers, which have the run's id as a word only.
    """
    found = members(run_id)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if run_id in process.cmdline():
                found[process.pid] = "keeper"
    return found


def on_host(lab: Lab, name: str, pid: int) -> bool:
    """Whether a process is one of this host's: in the host's network, and not ended."""
    own = Path(f"/run/netns/{lab.host(name).namespace}").stat().st_ino
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino == own
    except FileNotFoundError:
        return False


def left_after(run_id: str, seconds: float) -> dict[int, str]:
    """What is left of a run when nothing is, or after so long."""
    give_up = time.monotonic() + seconds
    while (left := all_of(run_id)) and time.monotonic() < give_up:
        time.sleep(0.2)
    return left


@pytest.fixture
def training(lab: Lab, hostfile: Path, tmp_path: Path) -> Iterator[Training]:
    """A run on the two hosts of the lab, in training when returned; Open MPI leaves no files."""
    of_open_mpi = Path(f"/tmp/ompi.{lab.hosts[1].name}.{os.geteuid()}")
    shutil.rmtree(of_open_mpi, ignore_errors=True)  # what a run without Ringside has left
    with contextlib.ExitStack() as ends:

        def start(stack: str) -> Launched:
            flags, tasks = STACKS[stack]
            backend, *launcher = stack.split()
            placed = [flag.format(second=lab.hosts[1].name) for flag in flags]
            run = Launched(
                tmp_path / "run",
                backend,
                *(*launcher, *placed, "--hostfile", str(hostfile), "--deadline", "120"),
            )
            ends.callback(run.close)
            run.wait_until_training(list(tasks))
            return run

        yield start

    assert not of_open_mpi.exists()


@pytest.mark.parametrize("stack", ["horovod", nightly("horovod --launcher mpirun")])
def test_a_killed_launcher(stack: str, training: Training, lab: Lab) -> None:
    """kill -9 of `ringside` leaves no process on any host, whichever launcher started the ranks."""
    run = training(stack)
    run_id = run.run_id()
    started = all_of(run_id)
    assert any(on_host(lab, lab.hosts[1].name, pid) for pid in started), started

    run.process.kill()

    assert left_after(run_id, KEEPER_LIMIT_S) == {}


@pytest.mark.parametrize(
    ("stack", "words"),
    [
        # ssh says 255 of a process that was killed there, by whatever signal.
        ("multi_worker_mirrored", "failed(ProcessDied: worker-1 exited with code 255 after step"),
        nightly("horovod", "failed(ProcessDied: rank-1 exited with code 255 after step"),
    ],
    ids=["multi_worker_mirrored", "horovod"],
)
def test_a_killed_rank(stack: str, words: str, training: Training, lab: Lab) -> None:
    """kill -9 of the rank on the second host ends the run, named; no process is left."""
    run = training(stack)
    run_id = run.run_id()

    (victim,) = [
        pid
        for pid, text in members(run_id).items()
        if text.startswith(TASK) and "train.py" in text and on_host(lab, lab.hosts[1].name, pid)
    ]
    os.kill(victim, signal.SIGKILL)
    said = run.process.communicate(timeout=END_LIMIT_S)[0]

    assert run.process.returncode == 1, said
    assert words in said, said
    assert left_after(run_id, KEEPER_LIMIT_S) == {}


@pytest.mark.parametrize("stack", ["horovod --launcher mpirun", nightly("parameter_server")])
def test_a_lost_link(stack: str, training: Training, lab: Lab) -> None:
    """A host whose link is cut is named as lost; it ends the run's processes by itself."""
    run = training(stack)
    run_id = run.run_id()
    second = lab.hosts[1].name
    assert any(on_host(lab, second, pid) for pid in members(run_id))

    lab.cut(second)
    try:
        said = run.process.communicate(timeout=END_LIMIT_S)[0]
        left = left_after(run_id, KEEPER_LIMIT_S)
    finally:
        lab.mend(second)

    assert run.process.returncode == 1, said
    assert f"failed(HostLost: {second}: no answer any more" in said, said
    assert left == {}
