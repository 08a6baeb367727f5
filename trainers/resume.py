"""Resuming from a checkpoint, at the beginning of an epoch or within one."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from backends.base import Backend
from ringside_core.keras import KERAS, tf
from ringside_core.specs import AUTO, RecordInProgress, RefusalError
from trainers import checkpoint
from trainers.checkpoint import Position
from trainers.driver import Training

# Fields of `feed` by which a run knows its checkpoint at the end of an epoch.
_WHOSE = ("workload", "seed", "global_batch")
# What the chief tells instead of a checkpoint's number.
_NONE, _DAMAGED = -1, -2


def restored(
    record: RecordInProgress, model: Any, backend: Backend, run_dir: Path
) -> Position | None:
    """Restore the checkpoint that the record's spec names, if there is one.

    Of a run that goes on in its folder, a training that was over is restored as it ended: it has no
    epochs left. Who names a checkpoint wants to train on.

    Args:
        record: of this process; a checkpoint that is passed over is noted in it.
        model: compiled.
        backend: started.
        run_dir: where checkpoints of this run are.

    Returns:
        Where the training was; None: it begins.

    Raises:
        RefusalError: no epochs are left, or the checkpoint does not fit this model.
    """
    spec = record.spec
    path = Path(spec.resume_from) if spec.resume_from else None
    if spec.resume_from == AUTO:
        path = _newest(record, backend, run_dir)
    if path is None:
        return None
    position = checkpoint.restore(path, model, backend)
    record.warnings += _of_another_size(position, model, spec.topology.num_replicas)
    if spec.resume_from == AUTO:
        if position.ended:
            return dataclasses.replace(position, epochs_done=spec.epochs)
        if position.epochs_done == spec.epochs and position.begun is None:
            return position
    if position.epochs_done >= spec.epochs:
        raise RefusalError(
            "A resumed run must have epochs left.",
            received=f"{position.epochs_done} done, --epochs {spec.epochs}",
            advice="Ask for more epochs.",
        )
    return position


def _of_another_size(position: Position, model: Any, replicas: int) -> tuple[str, ...]:
    """A warning if the numbers are others from here on, because a replica's part of a batch is."""
    if position.replicas in (None, replicas):
        return ()
    by_part = {type(one).__name__ for one in model._flatten_layers() if _is_of_parts(one)}
    if not by_part:
        return ()
    return (
        f"Trained with {position.replicas} replicas until here, and with {replicas} from here on. "
        f"{', '.join(sorted(by_part))} work on each replica's part of a batch, so the weights will "
        "not be those of a run that kept its size.",
    )


def _is_of_parts(layer: Any) -> bool:
    """Whether a layer draws random numbers, or normalises with the statistics of a slice."""
    if isinstance(layer, tf.keras.layers.BatchNormalization):
        return not getattr(layer, "synchronized", False)
    # A recurrent layer can draw, and most do not.
    asked = getattr(layer, "dropout", 1), getattr(layer, "recurrent_dropout", 0)
    return KERAS.draws(layer) and any(asked)


def _newest(record: RecordInProgress, backend: Backend, run_dir: Path) -> Path | None:
    """The newest whole checkpoint of a run, as the chief finds it."""
    # A damaged newest one is put aside: the next save would keep it instead of the whole one.
    names, damaged = (checkpoint.NEWEST, checkpoint.BEFORE), list[str]()
    chosen = _NONE
    for number, name in enumerate(names):
        if not backend.is_chief or not (run_dir / name).exists():
            continue
        try:
            checkpoint.read(run_dir / name)
        except RefusalError as error:
            damaged.append(f"{name} is damaged ({error.received})")
            continue
        chosen = number
        break
    if damaged:
        if chosen == _NONE:
            chosen = _DAMAGED
        else:
            (run_dir / checkpoint.NEWEST).replace(run_dir / checkpoint.DAMAGED)
    chosen = int(backend.broadcast(np.array(float(chosen))))
    if chosen == _DAMAGED:
        raise RefusalError(
            "A run goes on from a whole checkpoint.",
            received="; ".join(damaged) or "what the chief finds damaged",
            advice=f"Remove them from {run_dir} to begin again.",
        )
    record.warnings += tuple(f"{one}; gone on from the one before it." for one in damaged)
    return None if chosen == _NONE else run_dir / names[chosen]


def check_goes_on(training: Training, position: Position) -> None:
    """Refuse to continue an epoch with other settings than it began with, or another's run.

    Call it when the metrics exist.
    """
    begun = training.begun
    if begun is None:
        if training.spec.resume_from == AUTO and position.feed is not None:
            _check_whose(json.loads(training.feed), json.loads(position.feed))
        return
    now, then = json.loads(training.feed), json.loads(begun.feed)
    if differing := sorted(name for name in {*now, *then} if now.get(name) != then.get(name)):
        raise RefusalError(
            "A begun epoch must go on as it began.",
            received=_changes(now, then, differing),
            advice="Resume as the epoch began, or from a checkpoint at the end of an epoch.",
        )
    spec, done = training.spec, training.updates_before
    if spec.checkpoint_steps is not None and done % spec.steps_per_execution:
        raise RefusalError(
            "A begun epoch that is to be saved again must go on where an execution begins.",
            received=f"{done} updates done, steps_per_execution={spec.steps_per_execution}",
            advice="Leave --checkpoint-steps away, or use a divisor of the updates done.",
        )


def _check_whose(now: dict[str, Any], then: dict[str, Any]) -> None:
    """Refuse a checkpoint that another run has left in the folder."""
    if differing := [name for name in _WHOSE if now.get(name) != then.get(name)]:
        raise RefusalError(
            "A run goes on in its folder only from a checkpoint of its own.",
            received=_changes(now, then, differing),
            advice="Choose another folder with --run-dir, or name the checkpoint with "
            "--resume-from.",
        )


def _changes(now: dict[str, Any], then: dict[str, Any], names: list[str]) -> str:
    return ", ".join(f"{name}={now.get(name)}, was {then.get(name)}" for name in names)
