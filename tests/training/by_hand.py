"""Scripts of this folder, started by hand, and what their records hold."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

SCRIPTS = Path(__file__).parent / "scripts"
SERIAL = [sys.executable]
MPIRUN = ["mpirun", "-np", "2", "--oversubscribe", sys.executable]


def run(
    name: str, command: list[str], folder: Path, *words: str
) -> subprocess.CompletedProcess[str]:
    """A script, which leaves `numbers.npz` in the folder."""
    folder.mkdir()
    return subprocess.run(
        [*command, str(SCRIPTS / name), str(folder / "numbers.npz"), *words],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def trained_as_by_one_process(name: str, folder: Path) -> tuple[list[Any], list[Any]]:
    """The ledgers of a script by one process and by two, which have left the same numbers."""
    for run_dir, command in (("serial", SERIAL), ("two", MPIRUN)):
        done = run(name, command, folder / run_dir)
        assert done.returncode == 0, done.stdout + done.stderr

    serial, two = (np.load(folder / run_dir / "numbers.npz") for run_dir in ("serial", "two"))
    for array in serial.files:
        np.testing.assert_allclose(two[array], serial[array], rtol=1e-10)
    return ledgers(folder / "serial"), ledgers(folder / "two")


def ledgers(folder: Path) -> list[Any]:
    """Of each epoch of a process."""
    (record, *_) = folder.rglob("records/*.json")
    return [epoch["ledger"] for epoch in json.loads(record.read_text())["epochs"]]
