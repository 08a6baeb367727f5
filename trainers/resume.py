"""Going on from a checkpoint: at the beginning of an epoch, or in the middle of one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backends.base import Backend
from specs import InputShard, RefusalError, RunSpec
from trainers import checkpoint
from trainers.checkpoint import Position
from trainers.epoch_totals import updates_per_batch
from trainers.ledger import tagged
from workloads.pipeline import Pipeline

# Of PipelineOptions: these change how fast batches come, not which.
_SPEED_ONLY = {"parallel_map", "prefetch"}


def feed(spec: RunSpec, train: Pipeline, num_readers: int) -> str:
    """What decides which examples the global batches of an epoch hold, as JSON."""
    found = {
        "global_batch": spec.global_batch,
        "seed": spec.seed,
        "examples": train.num_examples,
        "data_digest": train.data_digest,
        **spec.pipeline.model_dump(exclude=_SPEED_ONLY),
    }
    if spec.pipeline.shard != "batch":
        found["readers"] = num_readers
    return json.dumps(found, sort_keys=True)


def restored(spec: RunSpec, train: Pipeline, model: Any, backend: Backend) -> Position:
    """Put the checkpoint of `spec.resume_from`, if any, into the model.

    Raises:
        RefusalError: nothing is left to do, or a begun epoch would go on with other examples.
    """
    if not spec.resume_from:
        return Position(epochs_done=0)
    position = checkpoint.restore(Path(spec.resume_from), model, backend)
    if position.epochs_done >= spec.epochs:
        raise RefusalError(
            "A resumed run must have epochs left.",
            received=f"{position.epochs_done} done, --epochs {spec.epochs}",
            advice="Ask for more epochs.",
        )
    begun = position.begun
    if begun is None:
        return position
    now, then = json.loads(feed(spec, train, backend.num_readers)), json.loads(begun.feed)
    if differing := sorted(name for name in {*now, *then} if now.get(name) != then.get(name)):
        raise RefusalError(
            "A begun epoch must go on with the examples that are left of it.",
            received=", ".join(f"{n}={now.get(n)}, was {then.get(n)}" for n in differing),
            advice="Resume as the epoch began, or from a checkpoint at the end of an epoch.",
        )
    if spec.ledger == "full" and begun.fed is None:
        raise RefusalError(
            "A full ledger of a begun epoch needs that of its beginning.",
            received="a checkpoint without one",
            advice="Use --ledger digest, or a checkpoint at the end of an epoch.",
        )
    return position


def updates_done(position: Position, backend: Backend) -> int:
    """Updates of the begun epoch."""
    batches = 0 if position.begun is None else position.begun.batches
    return batches * updates_per_batch(backend)


def begin_within_epoch(model: Any, updates: int) -> None:
    """Let `fit` begin after so many updates of its first epoch.

    That is how Keras' own BackupAndRestore does it; the public arguments know whole epochs only.
    """
    model._maybe_load_initial_counters_from_ckpt = lambda steps, epoch: (epoch, updates)


def reader(spec: RunSpec, train: Pipeline, position: Position) -> Callable[[InputShard], Any]:
    """The function that gives a reader its batches, from where the training stands."""
    first = 0 if position.begun is None else position.begun.batches

    def read(shard: InputShard) -> Any:
        batches = train.dataset(shard, first_epoch=position.epochs_done, first_step=first)
        if spec.ledger != "full":
            return batches
        replicas = train.plan.num_replicas // shard.count
        per_epoch = train.reader_batches(shard) * replicas
        return tagged(batches, shard, per_epoch=per_epoch, first=first * replicas)

    return read
