"""Checks of what is really run: the training as it is timed, and as it is resumed. No TensorFlow.

A run that is watched is not the run. The recorder waits after each update, which hides a race; and
the full ledger is another path through the training step than the digest that timed runs keep.
"""

from collections.abc import Iterator, Mapping, Sequence

from ringside.verify.checks import training_ledger, validation_ledger
from ringside.verify.gate import (
    TOLERANCE,
    at_end,
    beyond_rounding,
    gaps,
    last_slots,
    parity,
    unfinished,
)
from ringside.verify.trace import Trace
from ringside_core.example_ids import digest_of_each_once
from ringside_core.specs import Check, Deviation, LedgerDigest


def as_timed(
    arm: Mapping[str, Trace],
    reference: Trace,
    *,
    tasks: Sequence[str],
    exact: bool = True,
    precision: str = "float64",
    rounded: Trace | None = None,
) -> Check:
    """Whether an unwatched training ends as the reference does, after the same examples.

    Args:
        arm: trace of each process.
        reference: of the same examples, watched.
        tasks: processes that must have written a trace.
        exact: whether all has one right result. If updates may come in any order, only the weights
            and the evaluation have, of gradients that do not depend on the weights: a slot of SGD
            holds the gradient that came last.
        precision: of both runs.
        rounded: see `ringside.verify.gate.parity`.
    """
    name, tolerance = "as timed", TOLERANCE[precision]
    if obstacle := unfinished(arm, tasks=tasks) or _not_the_same_updates(arm, reference):
        return Check(name=name, passed=False, finding=obstacle, tolerance=tolerance)
    updates = sum(reference.meta["updates"])
    found = [
        deviation
        for task, trace in arm.items()
        for deviation in ends(task, trace, reference, updates)
        if exact or deviation.kind not in ("metrics", "slots")
    ]
    finding = f"unwatched, largest deviation at the end of {updates} updates"
    return beyond_rounding(name, found, reference, rounded, precision, finding)


def ends(task: str, trace: Trace, reference: Trace, updates: int) -> Iterator[Deviation]:
    """What a training of so many updates leaves in one process."""
    yield from at_end(task, trace, reference, updates)
    yield from last_slots(task, trace, reference, updates)
    yield from gaps(task, trace, reference, first_step=updates)


def _not_the_same_updates(arm: Mapping[str, Trace], reference: Trace) -> str:
    """How the updates or the examples of an arm are others than planned; empty: they are not."""
    planned = reference.meta["updates"]
    once = digest_of_each_once(reference.meta["train_examples"])
    for task, trace in arm.items():
        if trace.meta["updates"] != planned:
            return f"{task} made {trace.meta['updates']} updates in its epochs, not {planned}"
        for epoch, ledger in enumerate(trace.meta["ledgers"], start=1):
            counted = "no" if ledger is None else ledger["count"]
            told = f"{task} was fed {counted} examples in epoch {epoch}, and not"
            if reference.meta.get("goes_on"):
                if ledger != reference.meta["ledgers"][epoch - 1]:
                    return f"{told} those of the serial run"
            elif ledger is None or LedgerDigest(**ledger) != once:
                return f"{told} each of the {once.count} once"
    return ""


def resumed(
    arm: Mapping[str, Trace],
    uninterrupted: Trace,
    *,
    tasks: Sequence[str],
    precision: str = "float64",
    rounded: Trace | None = None,
) -> Check:
    """Whether a training that went on from a checkpoint is the one that was never interrupted.

    Args:
        arm: trace of each process, of both parts; it was stopped after its first epoch.
        uninterrupted: of the serial run.
        tasks: processes that must have written a trace.
        precision: of all runs.
        rounded: see `ringside.verify.gate.parity`.
    """
    name = "resumed"
    if obstacle := unfinished(arm, uninterrupted, tasks=tasks):
        return Check(name=name, passed=False, finding=obstacle, tolerance=TOLERANCE[precision])
    if rounded is not None:
        rounded = rounded.since(1)
    parted, later = {task: trace.since(1) for task, trace in arm.items()}, uninterrupted.since(1)
    checks = [
        _saved(arm),
        parity(parted, later, precision=precision, tasks=tasks, rounded=rounded),
        training_ledger(parted, later, synchronous=True),
        validation_ledger(parted, later),
    ]
    told = next((check for check in checks if not check.passed), checks[1])
    return told.replace(name=name, finding=f"after the restart, {told.finding}")


def _saved(arm: Mapping[str, Trace]) -> Check:
    """Whether the checkpoint holds what the model held, before it was written and afterwards."""
    wrong = [task for task, trace in arm.items() if len(set(trace.meta["around_saving"])) != 1]
    finding = f"the model and its checkpoint do not hold the same in {', '.join(wrong)}"
    return Check(name="saved", passed=not wrong, finding=finding if wrong else "they are the same")
