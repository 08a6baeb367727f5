"""Checkpoints: weights, optimizer state and position, written by the chief, read by everybody."""

import hashlib
import json
import os
import shutil
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.base import Backend
from ringside_core.archives import read_arrays
from ringside_core.keras import (
    KERAS,
    get_weights,
    optimizer_variables,
    optimizers_of,
    set_weights,
    slots_of,
)
from ringside_core.keras.draws import DRAWN
from ringside_core.specs import RefusalError, whole_file
from ringside_core.specs.files import HALF
from trainers.callback_state import CallbackState
from trainers.reading import Place
from trainers.totals import BegunEpoch

BYTES_BESIDE = 1024  # the most that an array takes in an archive beside its values
# In the folder of a run. The one before takes the place of a newest one that is damaged.
NEWEST, BEFORE = "checkpoint.npz", "checkpoint.before.npz"
DAMAGED = "checkpoint.damaged.npz"  # a newest one that was passed over
BEST = "checkpoint.best.npz"  # after the epoch with the smallest validation loss


@dataclass(frozen=True)
class Position:
    """Where a training was when a checkpoint was written.

    Attributes:
        epochs_done: number of the next epoch, as Keras counts them.
        begun: the epoch that has begun; None: none has.
        feed: of the run, at the end of an epoch, as JSON; None: not known.
        ended: a callback has stopped the training there.
        learned: by its callbacks until then; None: it has none.
        replicas: on which it was trained; None: not known.
        place: from where it goes on in its author's data; None: not known.
    """

    epochs_done: int
    begun: BegunEpoch | None = None
    feed: str | None = None
    ended: bool = False
    learned: CallbackState | None = None
    replicas: int | None = None
    place: Place | None = None


def snapshot(model: Any) -> dict[str, NDArray[Any]]:
    """All weights, optimizer variables and states of random numbers, and the optimizer's identity.

    Every process must call it. Reading a variable that is summed on read is a collective; a chief
    that reads alone would wait for ever (tensorflow#38635).
    """
    weights = {f"weight_{i:04d}": value for i, value in enumerate(get_weights(model))}
    state = {f"optimizer_{i:04d}": v.numpy() for i, v in enumerate(slots_of(model))}
    chance = {f"random_{i:04d}": v.numpy() for i, v in enumerate(_chance_of(model))}
    return {**weights, **state, **chance, **_identity(model)}


def _chance_of(model: Any) -> list[Any]:
    """The variables that say how its layers' and its steps' random numbers go on."""
    return [*KERAS.chance_of(model), *(v for k, v in vars(model).items() if k == DRAWN)]


def write(
    path: Path, arrays: dict[str, NDArray[Any]], position: Position, *, loss: float | None = None
) -> None:
    """Write a snapshot and its position; the file of before is kept beside it.

    Only the chief may call it.

    Args:
        path: of the newest checkpoint.
        arrays: see `snapshot`.
        position: of the training.
        loss: of the validation after the last epoch.
    """
    stored = {"epochs_done": np.array(position.epochs_done), "ended": np.array(position.ended)}
    stored |= {} if position.replicas is None else {"replicas": np.array(position.replicas)}
    if (place := position.place) is not None:
        stored |= {"place": np.array([str(part) for part in astuple(place)])}
    stored |= {} if loss is None else {"validation_loss": np.array(loss)}
    stored |= {} if position.learned is None else position.learned.to_arrays()
    stored |= {} if position.feed is None else {"feed": np.array(position.feed)}
    if (begun := position.begun) is not None:
        stored |= {"batches": np.array(begun.batches), "feed": np.array(begun.feed)}
        stored |= {f"total_{i:04d}": value for i, value in enumerate(begun.totals)}
    write_arrays(path, {**arrays, **stored}, before=path.with_name(BEFORE))


def write_arrays(
    path: Path, arrays: dict[str, NDArray[Any]], *, before: Path | None = None
) -> None:
    """Write arrays as .npz, whole or not at all; the file before it outlives a loss of power.

    Args:
        path: of the file.
        arrays: by name.
        before: where a file that is replaced is kept; None: it is not.

    Raises:
        OSError: they do not fit on the disk.
    """
    with whole_file(path, lasting=True) as stream:
        # NumPy would complain once more, when it forgets the half of an archive.
        space = sum(array.nbytes + BYTES_BESIDE for array in arrays.values())
        os.posix_fallocate(stream.fileno(), 0, max(1, space))
        np.savez(stream, **arrays)
        stream.truncate()
        if before is not None and path.exists():
            keep(path, before)


def keep(path: Path, other: Path) -> None:
    """Give a file another name too; a file that had that name is replaced.

    Raises:
        OSError: a copy, on a disk without links, does not fit.
    """
    spare = other.with_name(f".{other.name}{HALF}")
    spare.unlink(missing_ok=True)
    try:
        spare.hardlink_to(path)
    except OSError:  # a disk without links
        try:
            shutil.copyfile(path, spare)
        except OSError:
            spare.unlink(missing_ok=True)
            raise
    spare.replace(other)


def best_loss(run_dir: Path) -> float:
    """The validation loss of the best checkpoint of a run; infinity: it has none."""
    try:
        return float(read_arrays(run_dir / BEST)["validation_loss"])
    except _UNREADABLE:
        return float("inf")


def all_numbers(values: list[NDArray[Any]]) -> list[bool]:
    """Of each array, whether it holds nothing but numbers: no NaN, no infinity."""
    return [array.dtype.kind not in "fcV" or bool(np.isfinite(array).all()) for array in values]


def restore(path: Path, model: Any, backend: Backend) -> Position:
    """Put a snapshot back into a compiled model.

    Raises:
        RefusalError: the file is missing or damaged, belongs to another model or optimizer, or is
            not the same in every process.
    """
    arrays, position = _read_everywhere(path, backend)
    with backend.scope():
        variables = slots_of(model)
        here = [*get_weights(model), *(variable.numpy() for variable in variables)]
        if difference := _difference(arrays, values_in(arrays), here, model):
            raise RefusalError(
                "A checkpoint must come from the same model and optimizer.",
                received=f"{path}: {difference}",
            )
    put(values_in(arrays), model, backend)
    with backend.scope():
        for number, variable in enumerate(_chance_of(model)):
            if (state := arrays.get(f"random_{number:04d}")) is not None:
                variable.assign(state)
    return position


def values_in(arrays: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """The weights of a snapshot, then its optimizer variables, in order."""
    return [
        arrays[name]
        for begin in ("weight_", "optimizer_")
        for name in sorted(arrays)
        if name.startswith(begin)
    ]


def put(values: list[NDArray[Any]], model: Any, backend: Backend) -> None:
    """Assign all weights and all optimizer variables, in the types that they have here.

    Args:
        values: see `values_in`; of this model and optimizer.
        model: compiled; its optimizer is built.
        backend: on which the model was built.
    """
    variables = slots_of(model)
    split = len(values) - len(variables)
    with backend.scope():
        set_weights(model, values[:split])
        for variable, value in zip(variables, values[split:], strict=True):
            variable.assign(np.asarray(value, variable.dtype.as_numpy_dtype))


def _read_everywhere(path: Path, backend: Backend) -> tuple[dict[str, NDArray[Any]], Position]:
    """The same arrays in every process; a process that cannot read them tells the others first."""
    try:
        arrays, position = read(path)
    except RefusalError:
        same_everywhere(backend, "")  # the others wait for an answer
        raise
    if not same_everywhere(backend, _digest(arrays)):
        raise RefusalError(
            "Every process must resume from the same checkpoint.",
            received=f"{path}, of which the processes do not hold the same",
            advice="Copy one file to all hosts, or put it where all of them read it.",
        )
    return arrays, position


def read(path: Path) -> tuple[dict[str, NDArray[Any]], Position]:
    """A snapshot and its position, in this process alone.

    Raises:
        RefusalError: no checkpoint, or a damaged one.
    """
    try:
        arrays = read_arrays(path)
        return arrays, _position(arrays)
    except _UNREADABLE as error:
        raise RefusalError(
            "--resume-from must name a checkpoint of Ringside (.npz).", received=error
        ) from None


def _digest(arrays: dict[str, NDArray[Any]]) -> str:
    sha = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        sha.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()


def _difference(
    arrays: dict[str, NDArray[Any]],
    stored: list[NDArray[Any]],
    here: list[NDArray[Any]],
    model: Any,
) -> str | None:
    """How the stored arrays differ from those of the model here; None: they do not."""
    if [array.shape for array in stored] != [array.shape for array in here]:
        return f"{len(stored)} arrays, {len(here)} variables, shapes differ"
    identity = _identity(model)
    if not identity.keys() <= arrays.keys():
        return None  # written before checkpoints said whose they are
    for name, value in identity.items():
        then, now = arrays[name].tolist(), value.tolist()
        if then != now:
            return f"{name} {then}, here {now}"
    for then, now in zip(stored, here, strict=True):
        if then.dtype != now.dtype:
            return f"{then.dtype}, here {now.dtype}"
    return None


def _identity(model: Any) -> dict[str, NDArray[Any]]:
    """The optimizers' classes, which Horovod's wrapper keeps, and the names of their variables."""
    # A loss scale is a wrapper.
    scaled = [getattr(one, "inner_optimizer", one) for one in optimizers_of(model)]
    return {
        "optimizer": np.array(", ".join(type(one).__name__ for one in scaled)),
        "optimizer variables": np.array([n for n, _ in optimizer_variables(model)], dtype=str),
    }


def _count(array: NDArray[Any]) -> int:
    if array.shape or array.dtype.kind not in "iu" or array < 0:
        raise ValueError(f"{array} epochs or batches")
    return int(array)


def _position(arrays: dict[str, NDArray[Any]]) -> Position:
    epochs_done = _count(arrays["epochs_done"])
    feed = str(arrays["feed"]) if "feed" in arrays else None
    if feed is not None and not isinstance(json.loads(feed), dict):
        raise ValueError("it does not say what the run was fed")
    learned = CallbackState.from_arrays(arrays)
    replicas = _count(arrays["replicas"]) if "replicas" in arrays else None
    place = None
    if "place" in arrays:
        before, after, batches, of_epoch = arrays["place"].tolist()
        place = Place(before, after, int(batches), int(of_epoch))
    if "batches" not in arrays:
        ended = bool(arrays.get("ended", False))
        return Position(
            epochs_done, feed=feed, ended=ended, learned=learned, replicas=replicas, place=place
        )
    totals = tuple(arrays[name] for name in sorted(arrays) if name.startswith("total_"))
    begun = BegunEpoch(_count(arrays["batches"]), str(arrays["feed"]), totals)
    if begun.totals[-1].shape != (3,):
        raise ValueError("written within an epoch by an earlier version of Ringside")
    if begun.rows < 0:
        raise ValueError("a begun epoch that does not say what it was fed")
    return Position(epochs_done, begun, learned=learned, replicas=replicas, place=place)


# What reading a file, and what its bytes say, can end in.
_UNREADABLE = (
    *(OSError, ValueError, TypeError, LookupError),
    *(ArithmeticError, RecursionError, RefusalError),
)


def same_everywhere(backend: Backend, text: str) -> bool:
    """Whether every process has this text. All processes must ask, and get the same answer."""
    mine = np.frombuffer(hashlib.sha256(text.encode()).digest()[:8], np.int64)
    differs = float((mine != backend.broadcast(mine)).any())
    return not backend.all_reduce(np.array([differs]), "max")[0]


def weights_digest(model: Any) -> str:
    """SHA-256 over all weights of this process's model, in order."""
    sha = hashlib.sha256()
    for value in get_weights(model):
        sha.update(np.ascontiguousarray(value).tobytes())
    return sha.hexdigest()
