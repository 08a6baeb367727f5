"""What an epoch must have been fed, computed from its plan and not by the pipeline that fed it."""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside_core.keras import tf
from ringside_core.specs import LedgerDigest, RunSpec
from ringside_core.workloads.pipeline import Pipeline
from ringside_core.workloads.source import ArraySource
from trainers.ledger import LedgerError, digest, mix

_CHUNK = 1 << 20
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

    The order is compared for data in memory only. A stream is shuffled in a buffer, and only
    reading it again would tell its order.

    Args:
        ledger: result of `trainers.ledger.Ledger`, over all replicas.
        spec: of the run.
        pipeline: of the training split.
        epoch: from 0.
        readers: input pipelines of the run.
        ordered: whether the ledger knows the order; asynchronous updates have none.

    Raises:
        LedgerError: other examples were fed, or in another order.
    """
    name = f"epoch {epoch + 1}"
    _check_examples(digest(ledger), pipeline, name, readers)
    if not (ordered and isinstance(pipeline.prepared, ArraySource)):
        return
    if int(ledger[3]) % _WRAP != _planned_order(spec, pipeline.num_examples, epoch):
        raise LedgerError(
            f"{name} was fed the planned examples in another order than seed {spec.seed} gives"
        )


def check_validated(
    fed: LedgerDigest | None, pipeline: Pipeline, epoch: int, *, readers: int
) -> None:
    """Compare the ledger of a validation with its plan, as `check_fed` does; it has no order."""
    assert fed is not None  # an evaluation has just been made
    _check_examples(fed, pipeline, f"the validation of epoch {epoch + 1}", readers)


def _check_examples(fed: LedgerDigest, pipeline: Pipeline, name: str, readers: int) -> None:
    times = readers if pipeline.options.shard == "off" else 1  # every reader reads everything
    expected = _digest_of_each(pipeline.num_examples, times)
    if fed.count != expected.count:
        raise LedgerError(f"{name} was fed {fed.count} examples, its plan holds {expected.count}")
    if fed != expected:
        raise LedgerError(
            f"{name} was fed {fed.count} examples, as many as planned, but not each of them "
            f"{'once' if times == 1 else f'{times} times'}"
        )


@lru_cache(maxsize=8)
def _digest_of_each(count: int, times: int) -> LedgerDigest:
    """The digest of the ids 0…count-1, each so many times."""
    hash_sum = sum(_hash_sum(np.arange(n, min(n + _CHUNK, count))) for n in _chunks(count))
    id_sum = count * (count - 1) // 2
    return LedgerDigest(
        count=times * count, id_sum=times * id_sum, id_hash=f"{times * hash_sum % _WRAP:016x}"
    )


def _planned_order(spec: RunSpec, total: int, epoch: int) -> int:
    """The order of an epoch over data in memory, as `Ledger` adds it up; modulo 2**64.

    The shuffle is written out again here: a fault in the pipeline must not be in both.
    """
    order = 0
    for first in _chunks(total):
        positions = np.arange(first, min(first + _CHUNK, total))
        numbers = positions
        if spec.pipeline.shuffle:
            numbers = tf.random.experimental.index_shuffle(
                positions, seed=[spec.seed, epoch], max_index=total - 1
            )
        order += _hash_sum(numbers, 2 * (positions // spec.global_batch) + 1)
    return order % _WRAP


def _chunks(count: int) -> range:
    return range(0, count, _CHUNK)


def _hash_sum(ids: Any, factors: Any = 1) -> int:
    """Sum of the ids' hashes, each times its factor; modulo 2**64."""
    hashes = mix(tf.constant(ids, tf.int64)).numpy().astype(np.uint64)
    return int((hashes * np.asarray(factors, np.uint64)).sum(dtype=np.uint64))
