"""Scripts of this folder, started by hand, and what their records hold."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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


def ledgers(folder: Path) -> list[Any]:
    """Of each epoch of a process."""
    (record, *_) = folder.rglob("records/*.json")
    return [epoch["ledger"] for epoch in json.loads(record.read_text())["epochs"]]
