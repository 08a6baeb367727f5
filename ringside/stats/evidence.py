"""What the records of a run prove about its computation, as short answers."""

from collections.abc import Sequence
from typing import Literal

from ringside_core.example_ids import digest_of_each_once
from ringside_core.specs import EpochRecord, Run

# The last three say why the question makes no sense for this run.
Answer = Literal["yes", "no", "unknown", "one run", "one replica", "asynchronous"]


def examples_once(runs: Sequence[Run]) -> list[Answer]:
    """For each run: was every example fed exactly once in every epoch?

    `yes`: in every epoch of training and validation the ledger's digest is that of the ids 0…n-1,
    each once; n is the number in the data, the same in every completed run. Where an epoch goes on
    where the last one ended, a synchronous run has held each epoch against its plan. `no`: one of
    these is false. `unknown`: the run did not complete, or an epoch has no ledger.

    The rows of a script have no ids. `yes`: another run of the same seed was fed the same rows in
    the same order, in every epoch, and most of these runs were. `no`: it was fed others. `one
    run`: there is no other.
    """
    by_id = [run for run in runs if not _of_rows(run)]
    digests = {digest for run in by_id if (digest := _data_digest(run))}
    counts = [0 if len(digests) > 1 and _data_digest(run) else _whole_count(run) for run in by_id]
    most = max((count for count in counts if count is not None), default=0)
    found: dict[int, Answer] = {
        id(run): "unknown" if count is None else "yes" if count == most and count > 0 else "no"
        for run, count in zip(by_id, counts, strict=True)
    }
    found |= _same_rows([run for run in runs if _of_rows(run)])
    return [found[id(run)] for run in runs]


def _of_rows(run: Run) -> bool:
    """Whether its ledgers are of rows without ids; a run without one is not."""
    ledgers = [epoch.ledger for record in run.records for epoch in record.epochs]
    return any(ledger is not None and ledger.of_rows for ledger in ledgers)


def _same_rows(runs: Sequence[Run]) -> dict[int, Answer]:
    """The answers of runs of a script, by the `id` of the run."""
    found: dict[int, Answer] = {}
    groups: dict[tuple[object, ...], list[tuple[Run, tuple[object, ...]]]] = {}
    for run in runs:
        chief = next((record for record in run.records if record.is_chief), None)
        ledgers: tuple[object, ...] = (
            () if chief is None else tuple(epoch.ledger for epoch in chief.epochs)
        )
        if not run.outcome.completed or None in ledgers:
            found[id(run)] = "unknown"
        elif not run.spec.capabilities.synchronous:
            found[id(run)] = "asynchronous"  # each worker takes batches as it needs them
        else:  # the two Keras shuffle arrays otherwise
            key = (run.spec.seed, run.spec.global_batch, run.spec.keras)
            groups.setdefault(key, []).append((run, ledgers))
    for group in groups.values():
        seen = [ledgers for _, ledgers in group]
        for run, ledgers in group:
            most = 2 * seen.count(ledgers) > len(seen)
            found[id(run)] = "one run" if len(seen) == 1 else "yes" if most else "no"
    return found


def _data_digest(run: Run) -> str:
    return next((record.data_digest for record in run.records if record.is_chief), "")


def _whole_count(run: Run) -> int | None:
    """Examples of each epoch if each was fed once; 0 if not; None if there is no ledger."""
    chief = next((record for record in run.records if record.is_chief), None)
    if not run.outcome.completed or chief is None or not chief.epochs:
        return None
    if any(epoch.ledger is None for epoch in chief.epochs):
        return None
    fed = {epoch.examples + epoch.resumed_examples for epoch in chief.epochs}
    count = fed.pop()
    if chief.goes_on:
        planned = not fed and all(map(_validated_once, chief.epochs))
        return (count if planned else 0) if run.spec.capabilities.synchronous else None
    if chief.train_examples is not None and count != chief.train_examples:
        return 0
    if fed or any(epoch.ledger != digest_of_each_once(count) for epoch in chief.epochs):
        return 0
    return count if all(_validated_once(epoch) for epoch in chief.epochs) else 0


def _validated_once(epoch: EpochRecord) -> bool:
    ledger = epoch.validation_ledger
    return ledger is None or ledger == digest_of_each_once(epoch.validation_examples)


def replicas_equal(run: Run) -> Answer:
    """Do all replicas of a synchronous run end with the same trainable weights?

    `yes`: at its end the run found 0 as the largest difference. Statistics of batch normalisation
    are not trainable, so they do not count: they differ by design.
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
    """The answer for an arm: the worst answer of its completed runs."""
    order: tuple[Answer, ...] = ("no", "unknown", "one run", "yes", "one replica", "asynchronous")
    return min(answers, key=order.index, default="unknown")
