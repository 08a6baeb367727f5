"""The tables of arms and runs: results, step times, resources, what was computed, the order."""

from pathlib import Path

from ringside.report.blocks import Cell, Column, Table, heads
from ringside.report.sections.failures import link_to
from ringside.report.sections.proof import NOT_COMPARABLE
from ringside.report.words import NOTHING, range_of, with_interval
from ringside.stats.figure import Spread
from ringside.stats.run_figures import NOT_REACHED, TOO_SHORT
from ringside.stats.summary import ArmRow, Efficiency, RunRow, Summary
from ringside_core.text import decimals_for, number, percent, plural

INPUT_BOUND = 0.8  # of what the data yield alone
RATES = heads(
    "<Arm | Replicas | Examples/s (mean [95 % interval] n) | Efficiency (vs its own ×1) | "
    "Efficiency (vs serial)"
)


def spread_cell(spread: Spread, *, scale: float = 1.0) -> Cell:
    """The median with its range; if there is none, a dash with the reason."""
    if spread.value is None:
        return Cell(NOTHING, spread.reason)
    return Cell(number(spread.value * scale), range_of(spread, scale=scale))


def throughput_cell(row: ArmRow) -> Cell:
    """The geometric mean with its interval; with too few launches, the range and `no interval`."""
    mean, spread = row.mean_throughput, row.spreads["throughput_examples_s"]
    if mean.value is None:
        return spread_cell(spread)
    value, note = with_interval(mean)
    if mean.interval is None and spread.n > 1:
        note = f"{range_of(spread)}, no interval"
    return Cell(value, note)


def target_cell(spread: Spread) -> Cell:
    """Time to target. If some runs did not reach it there is no median: it would be too good.

    A run that was ended before its author's last epoch is at no fault.
    """
    if spread.value is not None and spread.n < spread.of and TOO_SHORT not in spread.reason:
        return Cell(NOTHING, f"{spread.n} of {spread.of} reached it", bad=True)
    if spread.value is None and spread.reason == NOT_REACHED:
        return Cell(NOTHING, "not reached", bad=True)
    return spread_cell(spread)


def efficiency_cell(value: Efficiency, row: ArmRow) -> Cell:
    """An efficiency with its base, or why there is none."""
    if not row.comparable:
        return Cell(NOT_COMPARABLE)
    if row.arm.twin_of:
        return Cell(NOTHING, f"the same arm as {row.arm.twin_of}")
    if value.base == row.arm.label:
        return Cell("base")
    if value.value is None:
        return Cell(NOTHING, value.reason)
    span = ""
    if value.interval is not None:
        low, high = (f"{100 * end:.0f}" for end in (value.interval.low, value.interval.high))
        span = f"[{low}, {high}] % "
    return Cell(percent(value.value), f"{span}of {value.base}")


def rate_cells(row: ArmRow) -> tuple[Cell, ...]:
    """The cells of RATES behind the label of the arm."""
    return (
        Cell(str(row.arm.replicas)),
        throughput_cell(row),
        efficiency_cell(row.against_group, row),
        efficiency_cell(row.against_serial, row),
    )


def results_table(summary: Summary) -> Table:
    """The main table: one row for each arm, see `arms_in_order`."""
    metric = summary.quality_metric or "quality"
    target = "" if summary.quality_target is None else f"{metric} ≥ {summary.quality_target:g}, s"
    columns = (
        *RATES,
        Column("Step", "ms"),
        Column("Time to target", target or "s"),
        Column(f"Final {metric}"),
        *heads("Peak memory (PSS, GiB) | Start-up (s) | Whole epochs (examples/s)"),
    )
    rows = tuple(_result(row, summary) for row in arms_in_order(summary))
    apart = sum(not row.comparable for row in summary.arms)
    return Table(columns, rows, apart, "Results, one row for each arm", "results")


def arms_in_order(summary: Summary) -> list[ArmRow]:
    """Arms in the order of the command line; those that are not comparable come last."""
    return sorted(summary.arms, key=lambda row: not row.comparable)


def _result(row: ArmRow, summary: Summary) -> tuple[Cell, ...]:
    lost = row.started - row.completed
    spreads = row.spreads
    note = "the same arm again, for the noise floor" if row.arm.twin_of else ""
    if not note and (summary.of_input(row) or 0.0) >= INPUT_BOUND:
        note = "input-bound"
    if lost:
        note = f"{lost} of {plural(row.started, 'run')} lost"
    return (
        Cell(row.arm.label, note, lost > 0),
        *rate_cells(row),
        spread_cell(spreads["step_time_ms"]),
        target_cell(spreads["time_to_target_s"]),
        spread_cell(spreads["final_quality"]),
        spread_cell(spreads["peak_pss_bytes"], scale=1 / 2**30),
        spread_cell(spreads["startup_s"]),
        spread_cell(spreads["whole_epochs_examples_s"]),
    )


def steps_table(summary: Summary) -> Table:
    """Step times, rank skew, and the cost of the clock itself."""
    columns = heads(
        "<Arm | p50 (ms) | p95 (ms) | p99 (ms) | Rank skew (ms) | Ringside's clock (% of a step)"
    )
    rows = tuple(
        (
            Cell(row.arm.label),
            *(
                spread_cell(row.spreads[name])
                for name in ("step_time_ms", "step_p95_ms", "step_p99_ms", "rank_skew_ms")
            ),
            spread_cell(row.spreads["clock_share"], scale=100),
        )
        for row in arms_in_order(summary)
    )
    apart = sum(not row.comparable for row in summary.arms)
    return Table(columns, rows, apart, "Step times, one row for each arm", "steps")


def runs_table(summary: Summary, folder: Path | None) -> Table:
    """Every run in the order in which they were started."""
    columns = heads("Order | Launch | <Arm | <Outcome | Examples/s | Wall time (s) | <Output")
    rows = tuple(_run(row, folder) for row in summary.runs)
    return Table(columns, rows, label="Runs as they were started", kind="runs", head=2)


def _run(row: RunRow, folder: Path | None) -> tuple[Cell, ...]:
    run, throughput = row.run, row.figures["throughput_examples_s"]
    return (
        Cell(str(run.position + 1)),
        Cell(str(run.round) if run.round else "screening"),
        Cell(row.arm.label),
        Cell(run.outcome.kind, bad=not run.outcome.completed),
        Cell(NOTHING, throughput.reason)
        if throughput.value is None
        else Cell(number(throughput.value)),
        Cell(number(run.wall_s, min(1, decimals_for(run.wall_s)))),
        Cell(run.log_dir, link=link_to(folder, run.log_dir)),
    )
