"""What an epoch must have been fed, computed from its plan and not by the pipeline that fed it."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside_core.example_ids import CHUNK, digest_of_each_once, splitmix64
from ringside_core.keras import tf
from ringside_core.specs import LedgerDigest, RunSpec
from ringside_core.workloads.pipeline import Pipeline
from ringside_core.workloads.source import ArraySource
from trainers.ledger import LedgerError, digest

_WRAP = 2**64


def check_fed(
    ledger: NDArray[Any],
    spec: RunSpec,
    pipeline: Pipeline,
    epoch: int,
    *,
    readers: int,
    ordered: bool,
) -> None:
    """Compare the ledger of a training epoch with its plan.

    Where epochs go on over the passes, the examples too are compared for data in memory only.
    Asynchronous training is not compared: a worker that was restarted may repeat steps. The order
    is compared for data in memory only: of a stream, only reading it again would tell its order.

    Args:
        ledger: result of `trainers.ledger.Ledger`, over all replicas.
        spec: of the run.
        pipeline: of the training split.
        epoch: from 0.
        readers: input pipelines of the run.
        ordered: whether the ledger knows the order; an epoch that asynchronous workers began has
            none.

    Raises:
        LedgerError: other examples were fed, or in another order.
    """
    name, fed = f"epoch {epoch + 1}", digest(ledger)
    in_memory = isinstance(pipeline.prepared, ArraySource)
    if not pipeline.shares.goes_on:
        _check_examples(fed, pipeline, name, readers)
    elif fed.count != (count := pipeline.shares.epoch_examples(readers)):
        raise LedgerError(f"{name} was fed {fed.count} examples, its plan holds {count}")
    elif in_memory and fed != _planned_examples(spec, pipeline, epoch):
        raise LedgerError(f"{name} was fed {fed.count} examples, but not those of its plan")
    if not (ordered and in_memory):
        return
    if int(ledger[3]) % _WRAP != _planned_order(spec, pipeline, epoch):
        raise LedgerError(
            f"{name} was fed the planned examples in another order than "
            + (f"seed {spec.seed} gives" if pipeline.shuffles else "the data have")
        )


def check_validated(
    fed: LedgerDigest | None, pipeline: Pipeline, epoch: int, *, readers: int
) -> None:
    """Compare the ledger of a validation with its plan, as `check_fed` does; it has no order."""
    assert fed is not None  # an evaluation has just been made
    _check_examples(fed, pipeline, f"the validation of epoch {epoch + 1}", readers)


def _check_examples(fed: LedgerDigest, pipeline: Pipeline, name: str, readers: int) -> None:
    times = readers if pipeline.options.shard == "off" else 1  # every reader reads everything
    once = digest_of_each_once(pipeline.num_examples)
    expected = LedgerDigest(
        count=times * once.count,
        id_sum=times * once.id_sum,
        id_hash=f"{times * int(once.id_hash, 16) % _WRAP:016x}",
    )
    if fed.count != expected.count:
        raise LedgerError(f"{name} was fed {fed.count} examples, its plan holds {expected.count}")
    if fed != expected:
        raise LedgerError(
            f"{name} was fed {fed.count} examples, as many as planned, but not each of them "
            f"{'once' if times == 1 else f'{times} times'}"
        )


def _planned_examples(spec: RunSpec, pipeline: Pipeline, epoch: int) -> LedgerDigest:
    """The examples of an epoch over data in memory, which is no pass over them."""
    count, id_sum, id_hash = 0, 0, 0
    for _, ids in _planned(spec, pipeline, epoch):
        count, id_sum = count + len(ids), id_sum + int(ids.sum())
        id_hash += int(splitmix64(ids).sum(dtype=np.uint64))
    return LedgerDigest(count=count, id_sum=id_sum, id_hash=f"{id_hash % _WRAP:016x}")


def _planned_order(spec: RunSpec, pipeline: Pipeline, epoch: int) -> int:
    """The order of an epoch over data in memory, as `Ledger` adds it up; modulo 2**64."""
    order = 0
    for places, ids in _planned(spec, pipeline, epoch):
        factors = (2 * (places // spec.global_batch) + 1).astype(np.uint64)
        order += int((splitmix64(ids) * factors).sum(dtype=np.uint64))
    return order % _WRAP


def _planned(
    spec: RunSpec, pipeline: Pipeline, epoch: int
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Places within an epoch over data in memory, and the ids planned there, part by part.

    The shuffle is written out again here: a fault in the pipeline must not be in both.
    """
    total = length = pipeline.num_examples
    first = epoch * total
    if pipeline.shares.goes_on:
        length = pipeline.shares.global_batches * spec.global_batch
        first = epoch * length
    for number in range(first // total, -(-(first + length) // total)):  # passes
        begin, end = max(first, number * total), min(first + length, (number + 1) * total)
        for chunk in range(begin, end, CHUNK):
            places = np.arange(chunk, min(chunk + CHUNK, end))
            ids = places - number * total
            yield places - first, _shuffled(ids, spec, pipeline, number)


def _shuffled(places: NDArray[Any], spec: RunSpec, pipeline: Pipeline, number: int) -> NDArray[Any]:
    """The ids at these places of a pass: whole groups of examples that stay together, shuffled."""
    source = pipeline.prepared
    assert isinstance(source, ArraySource)
    size = source.together
    whole = source.num_examples // size * size
    if not pipeline.shuffles or not (places < whole).any():
        return places
    groups = tf.random.experimental.index_shuffle(
        places[places < whole] // size, seed=[spec.seed, number], max_index=whole // size - 1
    ).numpy()
    shuffled = groups * size + places[places < whole] % size
    return np.concatenate([shuffled, places[places >= whole]])
