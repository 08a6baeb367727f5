"""A comparison as a reader meets it: sentences and tables of text, before any format.

HTML, Markdown and terminal show the same cells, so they cannot tell different stories.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from measure.summary import ArmRow, Efficiency, Missing, RunRow, Spread, Summary, summarize
from report.caveats import caveats
from report.cells import Cell, Column, Table
from report.failures import Failure, failures, link_to
from report.placement import Placement, placements
from report.proof import NOT_COMPARABLE, Proof, not_comparable, proof_of
from report.words import NOTHING, decimals_for, gib, listed, number, percent, plural, range_of
from specs import Comparison, capabilities_of

FAMILIES = {"none": "No distribution", "tf.distribute": "tf.distribute", "horovod": "Horovod"}


@dataclass(frozen=True)
class Finding:
    """The fastest arm at one number of replicas.

    Attributes:
        best_of: the fastest of each family: (family, arm, throughput, range).
        overlapping: arms whose range reaches into that of the fastest.
    """

    replicas: int
    arm: str
    throughput: str
    range: str
    overlapping: tuple[str, ...]
    others: int
    best_of: tuple[tuple[str, str, str, str], ...]

    @property
    def sentence(self) -> str:
        """What the ranges allow to be said."""
        if not self.others:
            return "The only arm of this size."
        if not self.overlapping:
            return (
                f"The ranges of all {self.others} others lie below."
                if self.others > 1
                else ("The range of the other lies below.")
            )
        return f"Its range overlaps with that of {listed(self.overlapping)}."


@dataclass(frozen=True)
class View:
    """Everything that a report says, apart from the plots.

    Attributes:
        not_comparable: (arms, why they are not ranked).
    """

    comparison: Comparison
    summary: Summary
    title: str
    lead: str
    findings: tuple[Finding, ...]
    quality: str
    proof: Proof
    not_comparable: tuple[tuple[str, str], ...]
    caveats: tuple[str, ...]
    results: Table
    evidence: Table
    resources: Table
    runs: Table
    failures: tuple[Failure, ...]
    machine: tuple[tuple[str, str], ...]


def view_of(comparison: Comparison, folder: Path | None = None) -> View:
    """Everything that is said of a comparison.

    Args:
        comparison: the records.
        folder: where its logs lie; None: they are neither read nor linked.

    Raises:
        RefusalError: the records contradict each other, see `measure.summary.summarize`.
    """
    summary = summarize(comparison)
    return View(
        comparison=comparison,
        summary=summary,
        title=comparison.name,
        lead=_lead(comparison, summary),
        findings=tuple(_findings(summary)),
        quality=_quality(summary),
        proof=proof_of(summary, comparison.detection),
        not_comparable=not_comparable(summary),
        caveats=tuple(caveats(comparison, summary)),
        results=results_table(summary),
        evidence=_evidence_table(summary),
        resources=_resources_table(placements(summary)),
        runs=_runs_table(summary, folder),
        failures=tuple(failures(comparison, folder)),
        machine=tuple(_machine(comparison)),
    )


def _lead(comparison: Comparison, summary: Summary) -> str:
    machine = comparison.machine
    what = f"{plural(len(comparison.arms), 'arm')} × {plural(comparison.rounds, 'round')}"
    where = (
        f"{machine.host}: {plural(machine.cores, 'core')} of {machine.cpu_model}, "
        f"{number(gib(machine.memory_bytes))} GiB"
    )
    if machine.gpus:
        where += f", {listed(machine.gpus)}"
    if not summary.runs:
        return f"{what}, no run, on {where}."
    spec = summary.runs[0].run.spec
    nobody = not any(row.comparable for row in summary.arms)
    return (
        f"{'No arm is comparable, so none is ranked. ' if nobody else ''}"
        f"{spec.workload}, global batch {spec.global_batch}, {plural(spec.epochs, 'epoch')}, "
        f"{spec.precision}. {what} on {where}."
    )


def _findings(summary: Summary) -> list[Finding]:
    """The fastest arm of each size, among those that are proved to compute the same."""
    found = []
    for replicas in sorted({row.arm.replicas for row in summary.arms}):
        ran = [
            (row, row.throughput)
            for row in summary.arms
            if row.arm.replicas == replicas and row.comparable and row.throughput is not None
        ]
        if ran:
            ran.sort(key=lambda pair: -pair[1].median)
            found.append(_finding(replicas, ran))
    return found


def _finding(replicas: int, ran: Sequence[tuple[ArmRow, Spread]]) -> Finding:
    """What is said of one size, whose arms come fastest first."""
    (best, top), *rest = ran
    best_of: dict[str, tuple[str, str, str, str]] = {}
    for row, spread in ran:
        family = FAMILIES[capabilities_of(row.arm.backend).family]
        told = (family, row.arm.label, number(spread.median), range_of(spread))
        best_of.setdefault(family, told)
    return Finding(
        replicas=replicas,
        arm=best.arm.label,
        throughput=number(top.median),
        range=range_of(top),
        overlapping=tuple(row.arm.label for row, spread in rest if spread.highest >= top.lowest),
        others=len(rest),
        best_of=tuple(best_of.values()),
    )


def _quality(summary: Summary) -> str:
    if summary.quality_target is None:
        return ""
    completed = sum(row.completed for row in summary.arms)
    spreads = [row.spreads["time_to_target_s"] for row in summary.arms]
    reached = sum(spread.n for spread in spreads if isinstance(spread, Spread))
    return (
        f"The target, {summary.quality_metric} ≥ {summary.quality_target:g}, was reached in "
        f"{reached} of {completed} completed runs."
    )


# Tables


def spread_cell(spread: Spread | Missing, *, scale: float = 1.0) -> Cell:
    """Median above its range; of what is missing, a dash above the reason."""
    if isinstance(spread, Missing):
        return Cell(NOTHING, spread.reason)
    return Cell(number(spread.median * scale), range_of(spread, scale=scale))


def target_cell(spread: Spread | Missing) -> Cell:
    """Time to target; a median over only the lucky runs would flatter, so there is none."""
    if isinstance(spread, Spread) and spread.n < spread.of:
        return Cell(NOTHING, f"{spread.n} of {spread.of} reached it", bad=True)
    if isinstance(spread, Missing) and spread.reason == "not reached":
        return Cell(NOTHING, "not reached", bad=True)
    return spread_cell(spread)


def efficiency_cell(value: Efficiency, row: ArmRow) -> Cell:
    """An efficiency with the base that it is against."""
    if not row.comparable:
        return Cell(NOT_COMPARABLE)
    if value.base == row.arm.label:
        return Cell("base")
    if value.value is None:
        return Cell(NOTHING, value.reason if value.base else "no such arm")
    return Cell(percent(value), f"of {value.base}")


def results_table(summary: Summary) -> Table:
    """The main table: one row for each arm, see `arms_in_order`."""
    metric = summary.quality_metric or "quality"
    target = "" if summary.quality_target is None else f"{metric} ≥ {summary.quality_target:g}, s"
    columns = (
        Column("Arm", numeric=False),
        Column("Replicas"),
        Column("Examples/s", "median [lowest–highest] n"),
        Column("Efficiency", "vs its own ×1"),
        Column("Efficiency", "vs serial"),
        Column("Step", "ms"),
        Column("Time to target", target or "s"),
        Column(f"Final {metric}"),
        Column("Peak memory", "GiB"),
        Column("Start-up", "s"),
        Column("CPU", "s / 1000 examples"),
    )
    rows = tuple(_result(row) for row in arms_in_order(summary))
    return Table(columns, rows, apart=sum(not row.comparable for row in summary.arms))


def arms_in_order(summary: Summary) -> list[ArmRow]:
    """Arms that are not comparable come last; else as they were asked for."""
    return sorted(summary.arms, key=lambda row: not row.comparable)


def _result(row: ArmRow) -> tuple[Cell, ...]:
    lost = row.started - row.completed
    spreads = row.spreads
    return (
        Cell(
            row.arm.label, f"{lost} of {plural(row.started, 'run')} lost" if lost else "", lost > 0
        ),
        Cell(str(row.arm.replicas)),
        spread_cell(spreads["throughput_examples_s"]),
        efficiency_cell(row.against_group, row),
        efficiency_cell(row.against_serial, row),
        spread_cell(spreads["step_time_ms"]),
        target_cell(spreads["time_to_target_s"]),
        spread_cell(spreads["final_quality"]),
        spread_cell(spreads["peak_memory_bytes"], scale=1 / 2**30),
        spread_cell(spreads["startup_s"]),
        spread_cell(spreads["cpu_s_per_1000_examples"]),
    )


def _evidence_table(summary: Summary) -> Table:
    columns = (
        Column("Arm", numeric=False),
        Column("Completed", "of runs started"),
        Column("Each example once", numeric=False),
        Column("Replicas equal", numeric=False),
    )
    rows = tuple(
        (
            Cell(row.arm.label),
            Cell(f"{row.completed} of {row.started}", bad=row.completed < row.started),
            Cell(row.each_example_once, bad=row.each_example_once == "no"),
            Cell(row.replicas_equal, bad=row.replicas_equal == "no"),
        )
        for row in summary.arms
    )
    return Table(columns, rows)


def _resources_table(placed: Sequence[Placement]) -> Table:
    columns = (
        Column("Arm", numeric=False),
        Column("Processes", "that hold no replica"),
        Column("Cores", "for each replica"),
        Column("Cores in use"),
        Column("Intra-op threads", "for each replica"),
        Column("Inter-op threads", "for each process"),
        Column("Shared cores", numeric=False),
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
        )
        for one in placed
    )
    return Table(columns, rows)


def _runs_table(summary: Summary, folder: Path | None) -> Table:
    columns = (
        Column("Order"),
        Column("Round"),
        Column("Arm", numeric=False),
        Column("Outcome", numeric=False),
        Column("Examples/s"),
        Column("Wall time", "s"),
        Column("Output", numeric=False),
    )
    return Table(columns, tuple(_run(row, folder) for row in summary.runs))


def _run(row: RunRow, folder: Path | None) -> tuple[Cell, ...]:
    run, throughput = row.run, row.figures.throughput_examples_s
    return (
        Cell(str(run.position + 1)),
        Cell(str(run.round + 1)),
        Cell(row.arm.label),
        Cell(run.outcome.kind, bad=not run.outcome.completed),
        Cell(NOTHING, throughput.reason)
        if throughput.value is None
        else Cell(number(throughput.value)),
        Cell(number(run.wall_s, min(1, decimals_for(run.wall_s)))),
        Cell(run.log_dir, link=link_to(folder, run.log_dir)),
    )


def _machine(comparison: Comparison) -> list[tuple[str, str]]:
    machine = comparison.machine
    made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(comparison.created_unix_s))
    return [
        ("Made", made),
        ("Command", comparison.command),
        ("Seed of the order", str(comparison.seed)),
        ("Host", machine.host),
        ("Processor", f"{machine.cpu_model}, {plural(machine.cores, 'core')}"),
        ("Memory", f"{number(gib(machine.memory_bytes))} GiB"),
        ("GPUs", listed(machine.gpus) if machine.gpus else "none found"),
        ("Kernel", machine.kernel),
        ("Python", machine.python),
        *sorted(machine.packages.items()),
    ]
