"""What a run has left in its folder, beside what another one has: records and checkpoint."""

from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from ringside_core.archives import read_arrays
from ringside_core.specs import LedgerDigest, RunRecord

CHECKPOINT = "checkpoint.npz"


def fits_of(run_dir: Path) -> list[Path]:
    """The folder of each training of a run: its own, and those of a script's later fits."""
    later = sorted(run_dir.glob("fit-*"), key=lambda one: int(one.name.removeprefix("fit-")))
    return [run_dir, *later]


def records_of(run_dir: Path) -> list[RunRecord]:
    """What the processes of one training have recorded."""
    files = (run_dir / "records").glob("*.json")
    return [RunRecord.from_json(file.read_text(), origin=file.name) for file in files]


def unlike(run_dir: Path, whole: Path) -> int:
    """Epochs of the last attempt that were trained on other rows than in the whole run.

    A begun epoch counts as a whole: a checkpoint holds the hash of its rows.
    """
    found = 0
    for one in fits_of(whole):
        wanted, fed = _fed(one), _fed(run_dir / one.relative_to(whole))
        found += sum(a != b for a, b in zip(wanted[-len(fed) :], fed, strict=False))
    return found


def deviation(run_dir: Path, whole: Path) -> float | None:
    """Largest difference between the last checkpoints of two runs, of each of their trainings.

    Returns:
        As a share of the largest number of its array; None: one of them is missing, or they hold
        other arrays.
    """
    found = [_deviation(run_dir / one.relative_to(whole), one) for one in fits_of(whole)]
    return None if None in found else max(one for one in found if one is not None)


def _deviation(run_dir: Path, whole: Path) -> float | None:
    try:
        found, wanted = read_arrays(run_dir / CHECKPOINT), read_arrays(whole / CHECKPOINT)
    except (OSError, ValueError, BadZipFile):
        return None
    if {name: one.shape for name, one in found.items()} != {
        name: one.shape for name, one in wanted.items()
    }:
        return None
    shares = [_share(found[name], one) for name, one in wanted.items() if one.dtype.kind == "f"]
    return max(shares, default=0.0) if np.isfinite(shares).all() else None


def _share(found: NDArray[Any], wanted: NDArray[Any]) -> float:
    scale = float(np.abs(wanted).max(initial=0.0)) or 1.0
    return float(np.abs(found - wanted).max(initial=0.0)) / scale


def _fed(run_dir: Path) -> list[LedgerDigest | None]:
    """The rows of each epoch; empty: its chief did not complete."""
    records = records_of(run_dir)
    chief = next((one for one in records if one.is_chief and one.outcome.completed), None)
    return [] if chief is None else [epoch.ledger for epoch in chief.epochs]
