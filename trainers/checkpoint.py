"""Checkpoints: weights, optimizer state and position, written by the chief, read by everybody."""

import os
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.base import Backend
from specs import RefusalError
from trainers.epoch_totals import BegunEpoch


@dataclass(frozen=True)
class Position:
    """Where a training was when a checkpoint was written: epochs done, and the one begun."""

    epochs_done: int
    begun: BegunEpoch | None = None


def snapshot(model: Any) -> dict[str, NDArray[Any]]:
    """All weights and all optimizer variables, in order. Every process must call it.

    Reading a variable that is summed on read takes part in a collective; a chief that reads alone
    would wait for ever (tensorflow#38635).
    """
    weights = {f"weight_{i:04d}": value for i, value in enumerate(model.get_weights())}
    state = {f"optimizer_{i:04d}": v.numpy() for i, v in enumerate(_variables(model.optimizer))}
    return {**weights, **state}


def write(
    path: Path,
    arrays: dict[str, NDArray[Any]],
    *,
    epochs_done: int,
    begun: BegunEpoch | None = None,
) -> None:
    """Write a snapshot and its position. Only the chief may call it."""
    position = {"epochs_done": np.array(epochs_done)}
    if begun is not None:
        position |= {"batches": np.array(begun.batches), "feed": np.array(begun.feed)}
        position |= {f"total_{i:04d}": value for i, value in enumerate(begun.totals)}
        position |= {} if begun.fed is None else {"fed": begun.fed}
    write_arrays(path, {**arrays, **position})


def write_arrays(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """Write arrays as .npz, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".npz")
    try:
        with os.fdopen(handle, "wb") as stream:
            np.savez(stream, **arrays)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def restore(path: Path, model: Any, backend: Backend) -> Position:
    """Put a snapshot back into a compiled model.

    Raises:
        RefusalError: no such file, a damaged one, or one of another model.
    """
    try:
        # A .npy is an array, which knows no `with`: TypeError. Empty: EOFError. NumPy itself keeps
        # a damaged file open if it opened it.
        with path.open("rb") as stream, np.load(stream) as stored:
            arrays = dict(stored)
        position = _position(arrays)
    except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise RefusalError(
            "--resume-from must name a checkpoint of Ringside (.npz).", received=error
        ) from None
    weights = [arrays[name] for name in sorted(arrays) if name.startswith("weight_")]
    state = [arrays[name] for name in sorted(arrays) if name.startswith("optimizer_")]
    with backend.scope():
        # A legacy optimizer has no `build`.
        build = getattr(model.optimizer, "build", None) or model.optimizer._create_all_weights
        build(model.trainable_variables)
        variables = _variables(model.optimizer)
        expected = [w.shape for w in model.get_weights()] + [tuple(v.shape) for v in variables]
        found = [array.shape for array in (*weights, *state)]
        if expected != found:
            raise RefusalError(
                "A checkpoint must come from the same model and optimizer.",
                received=f"{path}: {len(found)} arrays, {len(expected)} variables, shapes differ",
            )
        model.set_weights(weights)
        for variable, value in zip(variables, state, strict=True):
            variable.assign(value)
    return position


def _position(arrays: dict[str, NDArray[Any]]) -> Position:
    epochs_done = int(arrays["epochs_done"])
    if "batches" not in arrays:
        return Position(epochs_done)
    totals = tuple(arrays[name] for name in sorted(arrays) if name.startswith("total_"))
    begun = BegunEpoch(int(arrays["batches"]), str(arrays["feed"]), totals, arrays.get("fed"))
    return Position(epochs_done, begun)


def _variables(optimizer: Any) -> list[Any]:
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)
