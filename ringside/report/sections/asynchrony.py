"""Whether asynchronous workers pay: speed against the updates that it takes to learn."""

from collections import Counter
from collections.abc import Iterator

from ringside.report.blocks import Cell, Section, Table, Text, heads
from ringside.report.ranking import ratio_cell
from ringside.report.sections.tables import target_cell, throughput_cell
from ringside.report.words import NOTHING, times, with_interval
from ringside.stats.figure import Figure, Spread, mean_with_interval
from ringside.stats.final import Pair
from ringside.stats.summary import ArmRow, Summary, values_of
from ringside_core.specs import RefusalError
from ringside_core.text import listed, percent

SHOWN = 4  # of the staleness; the last one stands for it and more


def asynchrony_section(summary: Summary) -> Iterator[Section]:
    """Nothing, where no asynchronous arm stands beside a synchronous one of its size."""
    sizes = {
        kind: {row.arm.replicas for row in summary.arms if row.arm.capabilities.synchronous == kind}
        for kind in (True, False)
    }
    size = max(sizes[True] & sizes[False] - {1}, default=0)
    rows = [row for row in summary.arms if row.arm.replicas == size and not row.arm.twin_of]
    if not size:
        return
    yield Section(
        "asynchrony",
        "Synchronous or asynchronous?",
        "Asynchrony",
        " ".join(_answer(rows, summary)),
        (_table(rows, summary), Text(NOTE)),
    )


NOTE = (
    "All arms train the same number of examples in an epoch, but for a few under schedule=free; an "
    "asynchronous worker makes an update of its part of a batch. Staleness: updates of others "
    "between reading the weights and applying one."
)


def _answer(rows: list[ArmRow], summary: Summary) -> Iterator[str]:
    for row in rows:
        stale = row.spreads["mean_staleness"].value
        if stale is not None:
            yield f"{row.arm.label}: an update is {stale:.2g} updates stale on average."
    kept = [
        f"{row.arm.label} {times(ratio.value, ratio.interval)}"
        for row in rows
        if (ratio := _of_equal_workers(row, summary)).value is not None
    ]
    if kept:
        yield f"Of their speed with equal workers these keep: {listed(kept)}."


def _of_equal_workers(row: ArmRow, summary: Summary) -> Figure:
    """The speed of an arm with a slow worker ÷ that of the same arm without one."""
    if not row.arm.settings.slow_worker:
        return Figure(None)
    equal = row.arm.settings.replace(slow_worker=None)
    for other in (one.arm for one in summary.arms):
        if other == row.arm.replace(label=other.label, group=other.group, settings=equal):
            try:
                return summary.pair_of(row.arm.label, other.label).ratio
            except RefusalError:
                return Figure(None, "not comparable")
    return Figure(None, "no arm with equal workers")


def _table(rows: list[ArmRow], summary: Summary) -> Table:
    metric = summary.quality_metric or "quality"
    columns = heads(
        "<Arm | Examples/s | Times as fast (as with equal workers) | <Staleness (updates) | "
        f"Updates to target | Time to target (s) | Final {metric} (mean [95 %])"
    )
    body = tuple(
        (
            Cell(row.arm.label),
            throughput_cell(row),
            ratio_cell(Pair(row.arm.label, "", _of_equal_workers(row, summary))),
            _staleness(row, summary),
            _updates(row.spreads["updates_to_target"]),
            target_cell(row.spreads["time_to_target_s"]),
            Cell(*with_interval(_quality(row, summary))),
        )
        for row in rows
    )
    return Table(columns, body, label="Synchronous and asynchronous arms")


def _updates(spread: Spread) -> Cell:
    cell = target_cell(spread)
    if spread.value is None or cell.bad:
        return cell
    return Cell(f"{spread.value:.0f}", f"[{spread.lowest:.0f}–{spread.highest:.0f}] n={spread.n}")


def _staleness(row: ArmRow, summary: Summary) -> Cell:
    """The parts of the updates that are 0, 1, 2, … updates stale."""
    counts = Counter[int]()
    for one in summary.runs:
        if one.arm == row.arm and one.used:
            for epoch in (epoch for record in one.run.records for epoch in record.epochs):
                for stale, count in enumerate(epoch.staleness):
                    counts[min(stale, SHOWN - 1)] += count
    if not (total := counts.total()):
        return Cell(NOTHING, row.spreads["mean_staleness"].reason)
    names = [f"{stale}{'+' if stale == SHOWN - 1 else ''}" for stale in range(SHOWN)]
    parts = [f"{name}: {percent(counts[i] / total)}" for i, name in enumerate(names)]
    return Cell(", ".join(parts), f"mean {row.spreads['mean_staleness'].value:.2g}")


def _quality(row: ArmRow, summary: Summary) -> Figure:
    values = values_of(row.arm, summary.runs, "final_quality")
    return mean_with_interval(list(values.values())) if values else Figure(None, "no run has it")
