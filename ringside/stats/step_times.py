"""Who speaks for a run, whether they agree, and the time of every step as they recorded it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ringside_core.specs import (
    EpochRecord,
    RefusalError,
    Run,
    RunRecord,
    capabilities_of,
)

Epochs = list[list[tuple[RunRecord, EpochRecord]]]  # [epoch][process]


def timed_records(run: Run) -> tuple[RunRecord, ...]:
    """The records whose clocks count: replicas, or the coordinator; servers only serve."""
    return tuple(record for record in run.records if record.role != "server")


def chief_of(run: Run) -> RunRecord | None:
    """The record of the process that may write, if it left one."""
    return next((record for record in run.records if record.is_chief), None)


def expected_processes(run: Run) -> tuple[int, int]:
    """How many processes a run has: those whose clocks count, and all."""
    replicas = run.spec.topology.num_processes
    if capabilities_of(run.spec.backend).process_model == "coordinator":
        servers = int(getattr(run.spec.options, "servers", 1))
        return 1, 1 + replicas + servers
    return replicas, replicas


def missing(records: Sequence[RunRecord], expected: int) -> str:
    """Why nothing may be said when a process that should have left a record did not."""
    if len(records) == expected:
        return ""
    return f"{len(records)} of {expected} processes left a record"


def by_epoch(run: Run) -> Epochs:
    """The epochs of a run, each with the records of all processes whose clocks count."""
    records = timed_records(run)
    longest = max((len(record.epochs) for record in records), default=0)
    return [
        [(record, record.epochs[k]) for record in records if k < len(record.epochs)]
        for k in range(longest)
    ]


def durations_s(epoch: EpochRecord) -> NDArray[np.float64]:
    """Seconds for each step of one epoch in one process, [times].

    The time between two entries of step_end_s ÷ the steps between them; the first counts from the
    barrier before the epoch.
    """
    between = np.diff(np.asarray(epoch.step_end_s, np.float64), prepend=0.0)
    return between / steps_of_times(epoch)


def steps_of_times(epoch: EpochRecord) -> NDArray[np.int64]:
    """For how many steps each entry of step_end_s stands, [times]; the last may be for fewer."""
    steps = np.full(len(epoch.step_end_s), epoch.steps_per_time, np.int64)
    steps[-1] = epoch.steps - epoch.steps_per_time * (len(steps) - 1)
    return steps


def slowest_s(epochs: Sequence[EpochRecord]) -> NDArray[np.float64]:
    """Seconds for each step of one epoch, max over the processes, [times]."""
    longest: NDArray[np.float64] = np.max([durations_s(epoch) for epoch in epochs], axis=0)
    return longest


# What is refused


def check_records_agree(run: Run) -> None:
    """Refuse a run whose processes tell different stories of the same epochs.

    That each time is one is seen to by `RunRecord`.

    Raises:
        RefusalError: naming run, epoch, processes and field.
    """
    records = timed_records(run)
    for number, epochs in enumerate(by_epoch(run)):
        where = f"run {run.arm!r} of round {run.round + 1}, epoch {number + 1}"
        for what in ("examples", "steps", "steps_per_time"):
            seen = {record.task: getattr(epoch, what) for record, epoch in epochs}
            told = [f"{task} {value}" for task, value in seen.items()]
            told += [f"{record.task} none" for record in records if record.task not in seen]
            if len(set(seen.values())) > 1 or len(seen) < len(records):
                raise RefusalError(
                    f"All processes of a run must record the same {what} of each epoch.",
                    received=f"{where}: " + ", ".join(told),
                )
