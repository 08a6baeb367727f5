"""What share of the machine each arm had: processes, cores and threads, as the records tell."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ringside.stats.step_times import expected_processes
from ringside.stats.summary import ArmRow, RunRow, Summary
from ringside_core.specs import Run, RunRecord
from ringside_core.text import plural


@dataclass(frozen=True)
class Placement:
    """The resources of one arm.

    Attributes:
        processes: all of them, servers and coordinator too.
        extra: those that hold no replica.
        cores_per_replica: None if nothing was pinned.
        cores: distinct processors that its processes could use, over all hosts; 0 if unknown.
        threads_per_replica: of TensorFlow's intra-op pools; None if TensorFlow chose.
        shares: why its processes share processors; empty if they do not.
    """

    arm: ArmRow
    processes: int
    extra: int
    cores_per_replica: int | None
    cores: int
    threads_per_replica: float | None
    inter_op_threads: int | None
    shares: str


def placements(summary: Summary) -> list[Placement]:
    """One for each arm that ran at all, by its first run with all its records."""
    found = []
    for row in summary.arms:
        runs = [one for one in summary.runs if one.arm == row.arm]
        if runs:
            found.append(_placement(row, _most_telling(runs)))
    return found


def _most_telling(runs: Sequence[RunRow]) -> Run:
    return max(runs, key=lambda row: (row.run.outcome.completed, len(row.run.records))).run


def _placement(row: ArmRow, run: Run) -> Placement:
    resources, topology = run.spec.resources, run.spec.topology
    _, processes = expected_processes(run)
    threads = resources.intra_op_threads
    return Placement(
        arm=row,
        processes=processes,
        extra=processes - topology.num_processes,
        cores_per_replica=resources.cores_per_replica,
        cores=_cores(run.records),
        threads_per_replica=(
            None if threads is None else threads * topology.num_processes / topology.num_replicas
        ),
        inter_op_threads=resources.inter_op_threads,
        shares=_shares(run, processes),
    )


def _cores(records: Sequence[RunRecord]) -> int:
    """Distinct processors of a run, over all its hosts."""
    by_host: dict[str, set[int]] = defaultdict(set)
    for record in records:
        by_host[record.machine.host].update(record.cores)
    return sum(len(cores) for cores in by_host.values())


def _shares(run: Run, processes: int) -> str:
    """Why processors are shared; empty if each process has its own."""
    per_replica = run.spec.resources.cores_per_replica
    replicas, cores = run.spec.topology.num_replicas, _cores(run.records)
    if not cores:
        return ""
    if replicas * (per_replica or 1) > cores:
        asked = f" × {per_replica}" if (per_replica or 1) > 1 else ""
        return f"{plural(replicas, 'replica')}{asked} on {plural(cores, 'core')}"
    if per_replica is None:
        free = f"not pinned: {processes} processes, each free on {plural(cores, 'core')}"
        return free if processes > 1 else ""
    if sum(len(record.cores) for record in run.records) > cores:
        return f"{plural(processes, 'process')} on {plural(cores, 'core')}"
    return ""
