"""What is left of a process that could not write its record."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch import execute
from ringside_core.specs import RunRecord
from tests.parallel.launch.caller import calling
from tests.parallel.launch.conftest import PlanOf
from tests.small_disk import fill, small_disk
from tests.unit.stats.factory import epoch

EPOCHS = tuple(epoch(8.0, end_s=end) for end in (10.0, 11.0))


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL"])
def test_a_killed_process_leaves_its_epochs(name: str, plan_of: PlanOf) -> None:
    """The launcher reads them back, and says how the process ended."""
    plan = plan_of("serial", replicas=1, program="unfinished", then=name)

    execution = execute(plan, deadline_s=20)

    (record,) = execution.records
    assert execution.outcome.reason.startswith(f"rank-0 was killed by {name} after step 3")
    assert record.epochs == EPOCHS
    assert str(record.outcome) == "failed(NoRecord: it ended without writing its record)"
    assert read_all(Path(plan.run_dir) / "records") == {"rank-0.json": record}


@pytest.mark.usefixtures("signals_heard")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, -2)])
def test_a_launcher_that_is_ended_leaves_epochs(
    number: signal.Signals, code: int, plan_of: PlanOf, tmp_path: Path
) -> None:
    """As when a batch system takes the machine away."""
    plan = plan_of("multi_worker_mirrored", program="unfinished", then="wait")
    with calling(plan, tmp_path, start_new_session=True) as caller:
        assert caller.stdout is not None
        seen: set[str] = set()
        while len(seen) < 2:
            words = caller.stdout.readline().split()
            seen |= {words[0]} if "training," in words and int(words[4]) > 3 else set()
        caller.send_signal(number)
        caller.communicate(timeout=20)

    assert caller.returncode == code
    records = read_all(Path(plan.run_dir) / "records")
    assert sorted(records) == ["worker-0.json", "worker-1.json"]
    assert [record.epochs for record in records.values()] == [EPOCHS, EPOCHS]


@pytest.fixture(name="small")
def small_(tmp_path: Path) -> Iterator[Path]:
    """The folder of the first plan's run, on a small disk."""
    with small_disk(tmp_path / "run-0", "2m") as folder:
        yield folder


def test_a_record_fits_on_a_full_disk(small: Path, plan_of: PlanOf) -> None:
    """Its space was held from the beginning."""
    plan = plan_of("serial", replicas=1, program="unfinished", then="fill", steps=2)

    execution = execute(plan, deadline_s=20)

    assert execution.outcome.completed, execution
    (record,) = execution.records
    assert [one.end_since_process_start_s for one in record.epochs] == [10.0, 11.0, 12.0]
    assert read_all(small / "records") == {"rank-0.json": record}


@pytest.mark.usefixtures("small")
def test_a_record_that_does_not_fit_says_so(plan_of: PlanOf) -> None:
    """It names the full disk, and the epochs of before are there."""
    plan = plan_of("serial", replicas=1, program="unfinished", then="fill", steps=100_000)

    execution = execute(plan, deadline_s=20)

    (record,) = execution.records
    assert str(execution.outcome) == (
        "failed(OSError: rank-0: the record does not fit on the disk: [Errno 28] No space left on "
        f"device: '{plan.run_dir}/records/rank-0.json')"
    )
    assert record.epochs == EPOCHS


def test_a_run_that_finds_a_full_disk_is_refused(small: Path, plan_of: PlanOf) -> None:
    """It leaves no half of a claim, so that it can start once there is space."""
    fill(small / "full")
    plan = plan_of("multi_worker_mirrored", program="unfinished", then="wait")

    execution = execute(plan, deadline_s=20)

    assert execution.outcome.kind == "refused", execution
    assert "No space left on device" in execution.outcome.reason
    assert [one.name for one in small.iterdir()] == ["full"]


def read_all(folder: Path) -> dict[str, RunRecord]:
    """Every file of a folder, as a record."""
    return {file.name: RunRecord.from_json(file.read_text()) for file in folder.iterdir()}
