"""What a drill makes and compares, without any training."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

from launch import Plan
from ringside.certificates.processes import HERE
from ringside.certificates.subject import Subject
from ringside.drill.cells import Cell
from ringside.drill.drill import between_checkpoints
from ringside.drill.faults import FAULTS, obstacle, victim
from ringside.drill.left import CHECKPOINT, deviation, unlike
from ringside.drill.outside import damage, process_of, processes_of
from ringside.drill.run import Run
from ringside_core.archives import read_arrays
from ringside_core.specs import THIS_MACHINE, LedgerDigest, Outcome, RefusalError, RunSpec
from tests.unit.stats.factory import arm_of, epoch, record, spec_of
from tests.waiting import wait_until

LOST = Outcome(kind="failed", reason="rank-1 was killed", error_class="ProcessDied")
DONE = Outcome(kind="completed")


def planned(backend: str, tmp_path: Path) -> tuple[RunSpec, Plan]:
    """A run of two replicas, and its plan: a drill has the launcher that a user has."""
    spec = spec_of(backend, 2)
    subject = Subject(arm_of(backend, 2), spec)
    return spec, Run(subject, "", tmp_path / backend, HERE, deadline_s=20).plan


@pytest.mark.parametrize(
    ("backend", "fault", "task"),
    [
        ("mirrored", "rank-killed", "rank-0"),
        ("horovod", "rank-killed", "rank-1"),
        ("multi_worker_mirrored", "nan", "worker-1"),
        ("parameter_server", "rank-killed", "worker-1"),
        ("parameter_server", "rank-raises", "chief-0"),
        ("parameter_server", "server-killed", "ps-0"),
    ],
)
def test_the_last_task_is_struck(backend: str, fault: str, task: str, tmp_path: Path) -> None:
    """But what a task does by itself after an update, under a coordinator only that one can do."""
    assert victim(fault, *planned(backend, tmp_path)) == task


def test_what_cannot_be_made_says_why(tmp_path: Path) -> None:
    """Each obstacle is of the arm or of the machine."""
    obstacles = {
        backend: {
            fault: why
            for fault in FAULTS
            if (why := obstacle(fault, *planned(backend, tmp_path), THIS_MACHINE))
        }
        for backend in ("mirrored", "horovod", "parameter_server")
    }

    everywhere = {"link-cut", "host-lost", "first-host-lost"}
    assert obstacles["mirrored"].keys() == {*everywhere, "starter-killed", "server-killed"}
    assert obstacles["horovod"].keys() == {*everywhere, "server-killed"}
    assert obstacles["parameter_server"].keys() == {*everywhere, "starter-killed"}


@pytest.mark.parametrize(
    ("updates", "of_epoch", "every", "after"), [(30, 10, 4, 17), (46, 23, 4, 25), (9, 3, None, 7)]
)
def test_a_fault_comes_between_two_checkpoints(
    updates: int, of_epoch: int, every: int | None, after: int
) -> None:
    """Else nothing would have to be done once more."""
    spec = spec_of("serial", checkpoint_steps=every)

    assert between_checkpoints(spec, updates, of_epoch) == after


def test_a_run_that_is_too_short_is_refused() -> None:
    """Every update is followed by a checkpoint, or by the end."""
    spec = spec_of("serial")

    with pytest.raises(RefusalError, match="between two checkpoints"):
        between_checkpoints(spec, 3, 1)


def left_by(folder: Path, fed: str, weight: float, outcome: Outcome = DONE) -> Path:
    """What a run leaves: a record with an epoch for each hash of its rows, and a checkpoint."""
    (folder / "records").mkdir(parents=True)
    ledgers = [LedgerDigest(rows=4, hash=one) for one in fed]
    made = record(spec_of("serial"), [epoch(1.0, ledger=one) for one in ledgers], outcome=outcome)
    (folder / "records" / "rank-0.json").write_text(made.to_json())
    np.savez(folder / CHECKPOINT, a=np.array([weight, 4.0]), b=np.array([0.0]), n=np.array([7]))
    return folder


@pytest.mark.parametrize(
    ("fed", "outcome", "others"),
    [("abc", DONE, 0), ("bc", DONE, 0), ("adc", DONE, 1), ("cb", DONE, 2), ("d", LOST, 0)],
)
def test_rows_are_compared_epoch_by_epoch(
    fed: str, outcome: Outcome, others: int, tmp_path: Path
) -> None:
    """The record of the last attempt has the last epochs; one that failed is judged by that."""
    whole = left_by(tmp_path / "whole", "abc", 1.0)

    assert unlike(left_by(tmp_path / "run", fed, 1.0, outcome), whole) == others


def test_weights_are_compared_as_a_share_of_their_array(tmp_path: Path) -> None:
    """What is no number, or not there, is not 0."""
    whole = left_by(tmp_path / "whole", "", 1.0)

    assert deviation(left_by(tmp_path / "same", "", 1.0), whole) == 0.0
    assert deviation(left_by(tmp_path / "off", "", 1.5), whole) == 0.5 / 4
    assert deviation(left_by(tmp_path / "nan", "", float("nan")), whole) is None
    assert deviation(tmp_path / "nothing", whole) is None


def test_a_damaged_checkpoint_is_known_as_one(tmp_path: Path) -> None:
    """The bytes change where arrays are, and the archive says so."""
    file = left_by(tmp_path / "run", "", 1.0) / CHECKPOINT
    before = file.read_bytes()

    damage(file)

    assert len(file.read_bytes()) == len(before) != 0
    with pytest.raises(Exception, match="CRC"):
        read_arrays(file)


def test_a_task_is_known_by_its_command_and_its_environment(tmp_path: Path) -> None:
    """What started it names the folder too, and is another process."""
    (tmp_path / "train.py").write_text("import time\ntime.sleep(60)\n")
    command = [sys.executable, "train.py", "--run-dir", str(tmp_path)]
    shell = "import subprocess, sys; subprocess.run(sys.argv[1:])"
    of_two = {"HOROVOD_SIZE": "2", "HOROVOD_LOCAL_SIZE": "2"}
    environments = [
        {**os.environ, **of_two, "HOROVOD_RANK": rank, "HOROVOD_LOCAL_RANK": rank} for rank in "01"
    ]
    started = [
        subprocess.Popen([sys.executable, "-c", shell, *command], cwd=tmp_path, env=env)
        for env in environments
    ]
    try:
        wait_until(lambda: len(processes_of(tmp_path)) == 4)
        found = psutil.Process(process_of(tmp_path, "rank-1"))

        assert found.environ()["HOROVOD_RANK"] == "1"
        assert found.ppid() == started[1].pid
        with pytest.raises(RefusalError, match="rank-2 is not among"):
            process_of(tmp_path, "rank-2")
    finally:
        for process in processes_of(tmp_path):
            process.kill()
        for one in started:
            one.wait()


def test_a_run_lost_nothing_if_it_ended_as_the_whole_one() -> None:
    """Outcome, rows and weights; asynchronous updates have no right weights."""
    good = Cell(
        arm="horovod ×2", fault="nan", outcomes=(LOST, DONE), noticed_s=1, back_s=9, again=2,
        deviation=1e-14,
    )  # fmt: skip

    assert good.lost_nothing(1e-10)
    assert Cell(arm="a", fault="nan", obstacle="it has no server").lost_nothing(1e-10)
    assert good.replace(deviation=0.5, exact=False).lost_nothing(1e-10)
    for change in (
        {"outcomes": (LOST,)},
        {"outcomes": ()},
        {"other_rows": 1},
        {"deviation": 1e-9},
        {"deviation": None},
        {"deviation": None, "exact": False},  # weights that are no numbers
    ):
        assert not good.replace(**change).lost_nothing(1e-10), change
