"""Which resources each arm had: processes, cores and threads, as the records tell."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ringside.report.blocks import Cell, Section, Table, heads
from ringside.report.sections.tables import spread_cell
from ringside.stats.step_times import expected_processes
from ringside.stats.summary import ArmRow, Summary
from ringside_core.specs import Run, RunRecord
from ringside_core.text import listed, plural


@dataclass(frozen=True)
class ArmResources:
    """The resources of one arm."""

    arm: ArmRow
    processes: int  # all of them, servers and coordinator too
    extra: int  # those that hold no replica
    cores_per_replica: int | None  # None if nothing was pinned
    cores: int  # distinct processors that its processes could use, over all hosts; 0 if unknown
    threads_per_replica: float | None  # of TensorFlow's intra-op pools; None if TensorFlow chose
    inter_op_threads: int | None
    shares: str  # why its processes share processors


def arm_resources(summary: Summary) -> list[ArmResources]:
    """One for each arm that ran at all, by its first run with all its records."""
    found = []
    for row in summary.arms:
        runs = [one.run for one in summary.runs if one.arm == row.arm]
        if runs:
            most = max(runs, key=lambda run: (run.outcome.completed, len(run.records)))
            found.append(_resources_of(row, most))
    return found


def _resources_of(row: ArmRow, run: Run) -> ArmResources:
    resources, topology = run.spec.resources, run.spec.topology
    _, processes = expected_processes(run.spec)
    threads = resources.intra_op_threads
    in_replica = topology.num_processes / topology.num_replicas
    return ArmResources(
        arm=row,
        processes=processes,
        extra=processes - topology.num_processes,
        cores_per_replica=resources.cores_per_replica,
        cores=_cores(run.records),
        threads_per_replica=None if threads is None else threads * in_replica,
        inter_op_threads=resources.inter_op_threads,
        shares=_shares(run, processes),
    )


def _cores(records: Sequence[RunRecord]) -> int:
    """Number of different processors of a run, over all its hosts."""
    by_host: dict[str, set[int]] = defaultdict(set)
    for record in records:
        by_host[record.machine.host].update(record.cores)
    return sum(len(cores) for cores in by_host.values())


def _shares(run: Run, processes: int) -> str:
    """Why processes share processors; empty if each process has its own."""
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


def resources_table(placed: Sequence[ArmResources]) -> Table:
    """Processes, cores and threads of each arm, and the CPU time that it took."""
    columns = heads(
        "<Arm | Processes (in all; extra ones hold no replica) | Cores (for each replica) | "
        "Cores in use | Intra-op threads (for each replica) | "
        "Inter-op threads (for each process) | <Shared cores | CPU (s / 1000 examples) | "
        "Start-up CPU (s)"
    )
    rows = tuple(
        (
            Cell(one.arm.arm.label),
            Cell(str(one.processes), f"{one.extra} extra" if one.extra else ""),
            Cell("not pinned" if one.cores_per_replica is None else str(one.cores_per_replica)),
            Cell(str(one.cores) if one.cores else "unknown"),
            Cell(
                "TensorFlow's choice"
                if one.threads_per_replica is None
                else f"{one.threads_per_replica:g}"
            ),
            Cell(str(one.inter_op_threads or "TensorFlow's choice")),
            Cell(one.shares or "no", bad=bool(one.shares)),
            spread_cell(one.arm.spreads["cpu_s_per_1000_examples"]),
            spread_cell(one.arm.spreads["startup_cpu_s"]),
        )
        for one in placed
    )
    return Table(columns, rows, label="Cores and threads of each arm", kind="resources")


def resources_section(placed: Sequence[ArmResources]) -> Section:
    """Whether all arms had the same share of the machine."""
    sharing = [one.arm.arm.label for one in placed if one.shares]
    shares = {(one.cores_per_replica, one.threads_per_replica) for one in placed}
    if not placed:
        answer = "No run left a record."
    elif len(shares) > 1:
        answer = "No: cores or threads for each replica differ between arms."
    elif sharing:
        answer = f"Each replica was given the same, but {listed(sharing)} share cores."
    else:
        answer = "Yes: cores and threads of each replica are the same in all arms."
    title, table = "Had all arms the same resources?", resources_table(placed)
    sure = len(shares) == 1 and not sharing
    return Section("resources", title, "Resources", answer, (table,), sure=sure)
