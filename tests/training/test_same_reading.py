"""All processes of a script read the same data, or are told that they do not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

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


def test_data_that_each_process_draws_itself_are_refused(tmp_path: Path) -> None:
    """With the batch in which they first differ; in one sentence of each process."""
    done = run(MPIRUN, tmp_path / "two", "alone")

    words = "unseeded.py: Every process must read the same batches."
    assert words in done.stderr, done.stderr
    assert "first in batch 3 of epoch 1" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "two" / "numbers.npz").exists()
