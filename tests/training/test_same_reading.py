"""All processes of a script read the same data, or hear that they do not."""

from pathlib import Path

import pytest

from launch import execute, make_plan
from ringside_core.keras import tf
from tests.contract.cases import Case
from tests.training.by_hand import MPIRUN, SCRIPTS, ledgers, run, trained_as_by_one_process
from trainers.reading import Reading, read_the_same, reading
from trainers.workers import as_it_is


def hashes(folder: Path) -> list[str]:
    """Of the rows of each epoch."""
    return [ledger["hash"] for ledger in ledgers(folder)]


def test_a_script_without_seeds_reads_the_same_in_all_processes(tmp_path: Path) -> None:
    """Its shuffle, what its maps draw, and the numbers of NumPy and Python."""
    serial, two = trained_as_by_one_process("unseeded.py", tmp_path)

    assert [one["hash"] for one in two] == [one["hash"] for one in serial]


def test_a_timed_run_draws_as_its_author_wrote_it(tmp_path: Path) -> None:
    """A parallel map draws in each process; then as many rows are asked for, not the same."""
    script = f"{SCRIPTS / 'unseeded.py'} {tmp_path / 'numbers.npz'} in_parallel"
    spec = Case("horovod", 2).spec(script, epochs=2, save="record")

    execution = execute(make_plan(spec, run_dir=tmp_path / "timed"))

    assert execution.outcome.completed, execution.last_lines
    assert hashes(tmp_path / "timed") == ["", ""]


@pytest.mark.parametrize("as_written", [False, True])
def test_data_are_read_as_written_where_they_may_be(
    monkeypatch: pytest.MonkeyPatch, *, as_written: bool
) -> None:
    """Without the determinism of operations, in which a map that draws takes turns."""
    read_the_same()
    data, strategy = tf.data.Dataset.range(3), tf.distribute.OneDeviceStrategy("CPU:0")
    strategy.experimental_distribute_dataset = as_it_is
    turned_on: list[str] = []
    monkeypatch.setattr(
        tf.config.experimental, "enable_op_determinism", lambda: turned_on.append("on")
    )

    with reading(Reading(again=True, as_written=as_written), strategy):
        iter(strategy.experimental_distribute_dataset(data))

    assert turned_on == ([] if as_written else ["on"])


def test_data_that_each_process_draws_itself_are_refused(tmp_path: Path) -> None:
    """With the batch in which they first differ; in one sentence of each process."""
    done = run("unseeded.py", MPIRUN, tmp_path / "two", "alone")

    words = "unseeded.py: Every process must read the same batches."
    assert words in done.stderr, done.stderr
    assert "first in batch 3 of epoch 1" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "two" / "numbers.npz").exists()


def test_processes_that_hold_out_other_rows_are_refused(tmp_path: Path) -> None:
    """With other numbers of batches they would wait for each other for ever."""
    done = run("unseeded.py", MPIRUN, tmp_path / "two", "held_out")

    assert "unseeded.py: Every process must evaluate on the same data." in done.stderr
    assert "Traceback" not in done.stderr
