"""What an epoch must have been fed, computed from its plan and not by the pipeline that fed it."""

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
    name = f"epoch {epoch + 1}"
    _check_examples(digest(ledger), pipeline, name, readers)
    if not (ordered and isinstance(pipeline.prepared, ArraySource)):
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


def _planned_order(spec: RunSpec, pipeline: Pipeline, epoch: int) -> int:
    """The order of an epoch over data in memory, as `Ledger` adds it up; modulo 2**64.

    The shuffle is written out again here: a fault in the pipeline must not be in both.
    """
    order, total = 0, pipeline.num_examples
    for first in range(0, total, CHUNK):
        positions = np.arange(first, min(first + CHUNK, total))
        ids = positions
        if pipeline.shuffles:
            ids = tf.random.experimental.index_shuffle(
                positions, seed=[spec.seed, epoch], max_index=total - 1
            ).numpy()
        factors = (2 * (positions // spec.global_batch) + 1).astype(np.uint64)
        order += int((splitmix64(ids) * factors).sum(dtype=np.uint64))
    return order % _WRAP
