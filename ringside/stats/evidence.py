"""What the records of a run prove about its computation, as short answers."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Literal

from ringside.stats.step_times import chief_of
from ringside_core.specs import EpochRecord, Run

# The last three say why the question makes no sense for this run.
Answer = Literal["yes", "no", "unknown", "one run", "one replica", "asynchronous"]


def same_rows(runs: Sequence[Run]) -> list[Answer]:
    """For each run: was it fed the same rows in the same order as the others, in every epoch?

    Those epochs are held against each other that all of them have made with as many steps. `yes`:
    as most runs of the same seed, batch and Keras were. `no`: other rows, or in another order.
    `one run`: there is no other. `unknown`: it did not complete, or an epoch has no ledger.
    """
    found: dict[int, Answer] = {}
    groups: dict[tuple[object, ...], list[tuple[Run, tuple[EpochRecord, ...]]]] = {}
    for run in runs:
        chief = chief_of(run)
        epochs = () if chief is None else chief.epochs
        if not (run.outcome.completed and epochs) or any(one.ledger is None for one in epochs):
            found[id(run)] = "unknown"
        elif not run.spec.capabilities.synchronous:
            found[id(run)] = "asynchronous"  # each worker takes batches as it needs them
        else:  # the two Keras shuffle arrays otherwise
            # A live run that leaves after the screening may end within its first epoch.
            early = epochs[0].steps if run.blocks and len(epochs) == 1 else 0
            # Of another input the certificate says whether it is the same.
            spec = run.spec
            key = (spec.seed, spec.global_batch, spec.keras, spec.input, early)
            groups.setdefault(key, []).append((run, epochs))
    for group in groups.values():
        # Their first epochs that have the same number of steps in all runs.
        steps = zip(*([one.steps for one in epochs] for _, epochs in group), strict=False)
        common = sum(1 for _ in takewhile(lambda of_all: len(set(of_all)) == 1, steps))
        fed = [tuple(one.ledger for one in epochs[:common]) for _, epochs in group]
        counts = [tuple(one and one.rows for one in ledgers) for ledgers in fed]
        hashed = [ledgers for ledgers in fed if any(one and one.hash for one in ledgers)]
        for (run, _), ledgers, rows in zip(group, fed, counts, strict=True):
            most = 2 * counts.count(rows) > len(counts)
            if ledgers in hashed:  # XLA takes no hash
                most = most and 2 * hashed.count(ledgers) > len(hashed)
            alone: Answer = "one run" if len(group) == 1 else "unknown"
            found[id(run)] = alone if not common or len(group) == 1 else "yes" if most else "no"
    return [found[id(run)] for run in runs]


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
