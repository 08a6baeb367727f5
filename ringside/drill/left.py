"""What a run has left in its folder, beside what another one has: its ledger and checkpoint."""

from collections import Counter
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from ringside_core.archives import read_arrays

CHECKPOINT = "checkpoint.npz"


def fits_of(run_dir: Path) -> list[Path]:
    """The folder of each training of a run: its own, and those of a script's later fits."""
    later = sorted(run_dir.glob("fit-*"), key=lambda one: int(one.name.removeprefix("fit-")))
    return [run_dir, *later]


def unlike(run_dir: Path, whole: Path) -> tuple[int, int]:
    """(missed, repeated): examples that were fed less, or more often than in the whole run.

    They are counted epoch by epoch.
    """
    missed = repeated = 0
    for file in sorted(whole.glob("ledger/*.npz")) + sorted(whole.glob("fit-*/ledger/*.npz")):
        wanted, found = _fed(file), _fed(run_dir / file.relative_to(whole))
        missed += (wanted - found).total()
        repeated += (found - wanted).total()
    return missed, repeated


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


def _fed(file: Path) -> Counter[int]:
    if not file.exists():
        return Counter()
    ids = read_arrays(file)["fed"].ravel()
    return Counter(ids[ids >= 0].tolist())
