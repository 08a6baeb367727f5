"""What the records prove about what was computed, as short answers."""

import functools
from collections.abc import Sequence
from typing import Literal

from ringside_core.specs import (
    EpochRecord,
    LedgerDigest,
    Run,
)

# The last two say why the question does not arise.
Answer = Literal["yes", "no", "unknown", "one replica", "asynchronous"]

_GAMMA, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_CHUNK = 1 << 20


def examples_once(runs: Sequence[Run]) -> list[Answer]:
    """For each run: was every example fed exactly once in every epoch?

    `yes`: in every epoch the ledger's digest is the one of the ids 0…n-1, each once, with n the
    recorded number of examples (before a restart and after it) and that of the data, n is the same
    in every epoch of every completed run, and a ledger of the validation, where there is one, is
    the same for the examples counted there. `no`: it is not, or others were fed more, or runs held
    different examples. `unknown`: the run did not complete or an epoch has no ledger.
    """
    digests = {digest for run in runs if (digest := _data_digest(run))}
    counts = [0 if len(digests) > 1 and _data_digest(run) else _whole_count(run) for run in runs]
    most = max((count for count in counts if count is not None), default=0)
    return [
        "unknown" if count is None else "yes" if count == most and count > 0 else "no"
        for count in counts
    ]


def _data_digest(run: Run) -> str:
    return next((record.data_digest for record in run.records if record.is_chief), "")


def _whole_count(run: Run) -> int | None:
    """Examples of each epoch if each was fed once; 0 if not; None if nobody kept count."""
    chief = next((record for record in run.records if record.is_chief), None)
    if not run.outcome.completed or chief is None or not chief.epochs:
        return None
    if any(epoch.ledger is None for epoch in chief.epochs):
        return None
    fed = {epoch.examples + epoch.resumed_examples for epoch in chief.epochs}
    count = fed.pop()
    if chief.train_examples is not None and count != chief.train_examples:
        return 0
    if fed or any(epoch.ledger != digest_of_each_once(count) for epoch in chief.epochs):
        return 0
    return count if all(_validated_once(epoch) for epoch in chief.epochs) else 0


def _validated_once(epoch: EpochRecord) -> bool:
    ledger = epoch.validation_ledger
    return ledger is None or ledger == digest_of_each_once(epoch.validation_examples)


@functools.lru_cache(maxsize=8)
def digest_of_each_once(count: int) -> LedgerDigest:
    """The digest of the ids 0…count-1, each fed once; splitmix64 (Steele, Lea, Flood 2014)."""
    import numpy as np

    total = 0
    for first in range(0, count, _CHUNK):
        z = np.arange(first, min(first + _CHUNK, count), dtype=np.uint64) + np.uint64(_GAMMA)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(_MIX_1)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(_MIX_2)
        z ^= z >> np.uint64(31)
        total += int(z.sum(dtype=np.uint64))  # modulo 2**64
    return LedgerDigest(
        count=count, id_sum=count * (count - 1) // 2, id_hash=f"{total % 2**64:016x}"
    )


def replicas_equal(run: Run) -> Answer:
    """Do all replicas of a synchronous run end with the same trainable weights?

    `yes`: the largest difference that the run itself found at its end is 0. Statistics of batch
    normalisation are not trainable, and may differ by design.
    """
    if not run.spec.capabilities.synchronous:
        return "asynchronous"
    if run.spec.topology.num_replicas == 1:
        return "one replica"
    found = [record.replica_deviation for record in run.records if record.role == "replica"]
    if len(found) != run.spec.topology.num_processes or None in found:
        return "unknown"
    return "yes" if set(found) == {0.0} else "no"


def worst(answers: Sequence[Answer]) -> Answer:
    """The answer for an arm from those of its completed runs: the least good one."""
    order: tuple[Answer, ...] = (
        "no",
        "unknown",
        "yes",
        "one replica",
        "asynchronous",
    )
    return min(answers, key=order.index, default="unknown")
