"""All processes of a script read the same data, or are told that they do not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from launch import execute, make_plan
from ringside_core.keras import tf
from tests.contract.cases import Case
from trainers.reading import Reading, read_the_same, reading
from trainers.workers import as_it_is

SCRIPT = Path(__file__).parent / "scripts" / "unseeded.py"
SERIAL = [sys.executable]
MPIRUN = ["mpirun", "-np", "2", "--oversubscribe", sys.executable]


def run(command: list[str], folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The script, started by hand."""
    folder.mkdir()
    return subprocess.run(
        [*command, str(SCRIPT), str(folder / "numbers.npz"), *words],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def ledgers(folder: Path) -> list[str]:
    """Hashes of the rows of each epoch."""
    (record, *_) = folder.rglob("records/*.json")
    return [epoch["ledger"]["hash"] for epoch in json.loads(record.read_text())["epochs"]]


def test_a_script_without_seeds_reads_the_same_in_all_processes(tmp_path: Path) -> None:
    """Its shuffle, what its maps draw, and the numbers of NumPy and Python."""
    for name, command in (("serial", SERIAL), ("two", MPIRUN)):
        done = run(command, tmp_path / name)
        assert done.returncode == 0, done.stdout + done.stderr

    serial, two = (np.load(tmp_path / name / "numbers.npz") for name in ("serial", "two"))
    for name in serial.files:
        np.testing.assert_allclose(two[name], serial[name], rtol=1e-10)
    assert ledgers(tmp_path / "two") == ledgers(tmp_path / "serial")


def test_a_timed_run_draws_as_its_author_wrote_it(tmp_path: Path) -> None:
    """A parallel map draws in each process; then as many rows are asked for, not the same."""
    script = f"{SCRIPT} {tmp_path / 'numbers.npz'} in_parallel"
    spec = Case("horovod", 2).spec(script, epochs=2, save="record")

    execution = execute(make_plan(spec, run_dir=tmp_path / "timed"))

    assert execution.outcome.completed, execution.last_lines
    assert ledgers(tmp_path / "timed") == ["", ""]


@pytest.mark.parametrize("as_written", ["", "timed", "as_written"])
def test_data_are_read_as_written_where_they_may_be(
    monkeypatch: pytest.MonkeyPatch, as_written: str
) -> None:
    """Without the determinism of operations, in which a map that draws takes turns."""
    read_the_same()
    data, strategy = tf.data.Dataset.range(3), tf.distribute.OneDeviceStrategy("CPU:0")
    strategy.experimental_distribute_dataset = as_it_is
    turned_on: list[str] = []
    monkeypatch.setattr(
        tf.config.experimental, "enable_op_determinism", lambda: turned_on.append("on")
    )

    place = Reading(again=True, timed=as_written == "timed", as_written=as_written == "as_written")
    with reading(place, strategy):
        iter(strategy.experimental_distribute_dataset(data))

    assert turned_on == ([] if as_written else ["on"])


def test_data_that_each_process_draws_itself_are_refused(tmp_path: Path) -> None:
    """With the batch in which they first differ; in one sentence of each process."""
    done = run(MPIRUN, tmp_path / "two", "alone")

    words = "unseeded.py: Every process must read the same batches."
    assert words in done.stderr, done.stderr
    assert "first in batch 3 of epoch 1" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "two" / "numbers.npz").exists()
