"""Both families in a real Slurm of two nodes: by srun, and by `ringside launch --slurm`."""

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringside_core.specs import RunRecord
from tests.cluster.slurm.cluster import SlurmCluster
from tests.parallel.test_as_typed import read_records
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
TRAIN = (
    *("python", str(ROOT / "train.py")),
    *("--workload", "digits", "--epochs", "1", "--save", "record"),
)
LAUNCH = (
    *("ringside", "launch", "--slurm", "--replicas", "2", "--nodes", "2"),
    *("--workload", "digits", "--save", "record"),
)
LIMIT_S = 180
END_S = 30.0
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(LIMIT_S + 60)]


def same_training(records: list[RunRecord]) -> None:
    """All replicas began, and ended, with the same weights; each example was seen once."""
    assert len({record.initial_digest for record in records}) == 1
    assert len({record.final_digest for record in records}) == 1


def test_both_families_in_one_batch_script(slurm: SlurmCluster, tmp_path: Path) -> None:
    """What a person writes: two steps of a script, one for each family; they compute the same."""
    script = tmp_path / "job.sh"
    steps = [
        f"srun {' '.join(TRAIN)} --backend {backend} --run-dir {tmp_path / backend}"
        for backend in ("horovod", "multi_worker_mirrored")
    ]
    script.write_text("\n".join(["#!/bin/bash -e", *steps, ""]))
    out = tmp_path / "out"

    job = slurm.run(
        *("sbatch", "--wait", "--nodes=2", "--ntasks-per-node=1", f"--output={out}", str(script)),
        limit_s=LIMIT_S,
    )

    assert job.returncode == 0, out.read_text()
    horovod = read_records(tmp_path / "horovod")
    mirrored = read_records(tmp_path / "multi_worker_mirrored")
    assert sorted(horovod) == ["rank-0", "rank-1"]
    assert sorted(mirrored) == ["worker-0", "worker-1"]
    same_training([*horovod.values()])
    same_training([*mirrored.values()])
    ours, theirs = horovod["rank-0"], mirrored["worker-0"]
    assert ours.initial_digest == theirs.initial_digest
    assert ours.epochs[0].validation["loss"] == pytest.approx(
        theirs.epochs[0].validation["loss"], rel=1e-4
    )


def test_a_parameter_server(slurm: SlurmCluster, tmp_path: Path) -> None:
    """The first task coordinates, the last serves; all end by themselves."""
    run = slurm.run(
        *("srun", "--nodes=2", "--ntasks=4", *TRAIN, "--backend", "parameter_server"),
        *("--run-dir", str(tmp_path / "run")),
        limit_s=LIMIT_S,
    )

    assert run.returncode == 0, run.stderr
    assert sorted(read_records(tmp_path / "run")) == ["chief-0", "ps-0", "worker-0", "worker-1"]


def test_too_few_tasks(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Two tasks leave no worker beside coordinator and server: refused before anything is done."""
    run = slurm.run(
        *("srun", "--nodes=2", "--ntasks=2", *TRAIN, "--backend", "parameter_server"),
        *("--run-dir", str(tmp_path / "run")),
    )

    assert run.returncode == 2
    assert "Received: 2 tasks, servers=1. Use srun --ntasks=3 or more" in run.stderr
    assert "Traceback" not in run.stderr
    assert not (tmp_path / "run").exists()


def test_launch(slurm: SlurmCluster, tmp_path: Path) -> None:
    """`ringside launch --slurm` submits, waits, reads the records and leaves no job."""
    folder = tmp_path / "run"

    run = slurm.run(
        *(*LAUNCH, "--backend", "horovod", "--epochs", "1", "--run-dir", str(folder)),
        limit_s=LIMIT_S,
    )

    assert run.returncode == 0, run.stdout + run.stderr
    assert "completed in" in run.stdout
    records = read_records(folder)
    assert sorted(records) == ["rank-0", "rank-1"]
    same_training([*records.values()])
    assert slurm.state_of(job_name(folder)) == "COMPLETED"
    assert slurm.jobs() == []


@pytest.mark.usefixtures("signals_heard")
@pytest.mark.parametrize("signals", ["ctrl-c", "kill -9"])
def test_a_stopped_launcher_cancels_its_job(
    slurm: SlurmCluster, tmp_path: Path, signals: str
) -> None:
    """However the launcher ends, its job ends: from a machine that cannot see the tasks."""
    folder = tmp_path / "run"
    with elsewhere() as place, launching(slurm, place, folder) as launcher:
        wait_until_heard(folder / "progress" / "rank-1", launcher)
        ringside = child_of(launcher.pid)

        os.kill(ringside, signal.SIGINT if signals == "ctrl-c" else signal.SIGKILL)

        launcher.wait(END_S)
        wait_until(lambda: slurm.jobs() == [])
        if signals == "ctrl-c":
            assert launcher.returncode == 130
    # Its processes are killed first; Slurm may see that before it sees that the job is cancelled.
    assert slurm.state_of(job_name(folder)) in ("CANCELLED", "FAILED")


def test_a_job_that_somebody_cancels_has_a_name(slurm: SlurmCluster, tmp_path: Path) -> None:
    """The outcome says what Slurm says of the job."""
    folder = tmp_path / "run"
    with elsewhere() as place, launching(slurm, place, folder) as launcher:
        wait_until_heard(folder / "progress" / "rank-1", launcher)

        slurm.run("scancel", f"--name={job_name(folder)}")

        said = launcher.communicate(timeout=END_S)[0]
    assert launcher.returncode == 1
    assert "failed(JobCancelled: job" in said


def test_a_killed_task_ends_the_job(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Its peer is ended with it, and the outcome says whose end came first."""
    folder = tmp_path / "run"
    with elsewhere() as place, launching(slurm, place, folder) as launcher:
        wait_until_heard(folder / "progress" / "rank-1", launcher, "training")

        os.kill(task_of(job_name(folder).removeprefix("ringside-"), 1), signal.SIGKILL)

        said = launcher.communicate(timeout=END_S)[0]
    assert launcher.returncode == 1
    assert re.search(r"failed\(JobFailed: job \d+ ended as FAILED.*; .*task 1: Killed", said)
    assert slurm.jobs() == []


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--sbatch", "--partition=gpu"), "invalid partition specified: gpu"),
        (("--sbatch", "--mem=10G"), "Requested node configuration is not available"),
    ],
)
def test_what_slurm_does_not_take(
    slurm: SlurmCluster, tmp_path: Path, flags: tuple[str, ...], words: str
) -> None:
    """One message, and nothing is written."""
    run = slurm.run(*LAUNCH, "--backend", "horovod", *flags, "--run-dir", str(tmp_path / "run"))

    assert run.returncode == 2, run.stdout + run.stderr
    assert words in run.stderr
    assert run.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_job_that_would_wait_for_ever(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Slurm takes a job that is longer than its partition allows; no user waits for it."""
    folder = tmp_path / "run"

    run = slurm.run(
        *(*LAUNCH, "--backend", "horovod", "--sbatch", "--time=11", "--run-dir", str(folder))
    )

    assert run.returncode == 1
    assert "failed(JobNeverStarts: job" in run.stdout
    assert "waits for ever: PartitionTimeLimit" in run.stdout
    assert slurm.state_of(job_name(folder)) == "CANCELLED"


def job_name(folder: Path) -> str:
    """Name of the job of a run."""
    line = next(
        line for line in (folder / "job.sh").read_text().splitlines() if "--job-name=" in line
    )
    return line.partition("=")[2]


@contextlib.contextmanager
def elsewhere() -> Iterator[int]:
    """A place with processes of its own, as another machine has: the pid of its first one.

    On this one the launcher would find and kill the tasks itself, and Slurm would not be asked.
    """
    init = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sleep", "infinity"]
    )
    try:
        wait_until(lambda: children_of(init.pid) != [])
        yield child_of(init.pid)
    finally:
        init.kill()
        init.wait()


@contextlib.contextmanager
def launching(slurm: SlurmCluster, place: int, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A launcher in that place, of a run that takes long."""
    launcher = subprocess.Popen(
        [
            *("nsenter", f"--target={place}", "--pid", "--mount"),
            *(*LAUNCH, "--backend", "horovod", "--epochs", "1000", "--run-dir", str(folder)),
        ],
        env=slurm.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield launcher
    finally:
        launcher.kill()
        launcher.communicate()


def children_of(pid: int) -> list[int]:
    """Process ids of the children of a process."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def child_of(pid: int) -> int:
    """The only child of a process."""
    (child,) = children_of(pid)
    return child


def task_of(run_id: str, rank: int) -> int:
    """Process id of a task of a run."""
    wanted = {f"RINGSIDE_RUN_ID={run_id}", f"SLURM_PROCID={rank}"}
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            env = set((folder / "environ").read_text(errors="replace").split("\0"))
            command = (folder / "cmdline").read_text(errors="replace").split("\0")
            # The batch shell and srun have rank 0, and children of a task have its rank.
            if wanted <= env and str(ROOT / "train.py") in command and "srun" not in command:
                found.append(int(folder.name))
    return min(found)


def wait_until_heard(
    progress: Path, launcher: subprocess.Popen[str], phase: str = "importing"
) -> None:
    """Return when a task says that it is in this phase."""

    def heard() -> bool:
        assert launcher.poll() is None, launcher.communicate()[0]
        return progress.exists() and f" {phase}" in progress.read_text()

    wait_until(heard, seconds=LIMIT_S)
