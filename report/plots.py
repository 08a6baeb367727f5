"""The plots of a report: throughput, scaling, step times, quality over time."""

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from measure.run_figures import chief_of, step_times_ms
from measure.summary import ArmRow, Summary
from report.drawing import (
    LEGEND_WIDTH,
    Plot,
    Style,
    legend,
    legend_in,
    look_of,
    name_numbers,
    panels,
    plot,
    series,
    styles_of,
)
from report.svg import INK, MUTED, RULE
from report.words import number, plain, wrapped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL_WIDTH = 21
QUANTILES = 101
SHORTEST_MS = 0.001


def plots_of(summary: Summary) -> list[Plot]:
    """All plots of a comparison."""
    styles = styles_of(summary.arms)
    return [
        throughput_plot(summary, styles),
        scaling_plot(summary, styles),
        step_time_plot(summary, styles),
        quality_plot(summary, styles),
    ]


def throughput_plot(summary: Summary, styles: dict[str, Style]) -> Plot:
    """Examples/s of each arm: every run a dot, range and median."""
    title = "Throughput of each arm"
    rows = [row for row in summary.arms if row.throughput]
    if not rows:
        return Plot("throughput", title, "No run has a throughput.")
    # stable: arms keep their order within a size
    rows.sort(key=lambda row: (not row.comparable, row.arm.replicas))
    caption = "Each dot is one run, the bar its range, the stroke the median."
    ranked = [(row.throughput.median, row) for row in rows if row.comparable and row.throughput]
    if ranked:
        most, top = max(ranked, key=lambda pair: pair[0])
        caption += f" Highest median: {plain(top.arm.label)}, {number(most)} examples/s."
    caption += _set_apart(rows)

    def draw(figure: "Figure") -> None:
        axes = figure.subplots()
        for height, row in enumerate(rows):
            _dots(axes, height, row, _run_rates(summary, row), look_of(row, styles))
        axes.set_yticks(
            range(len(rows)), [wrapped(row.arm.label, LABEL_WIDTH, max_lines=2) for row in rows]
        )
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlim(left=0)
        axes.set_xlabel("examples/s")
        name_numbers(axes.xaxis)
        axes.grid(axis="y", visible=False)
        for height, (before, row) in enumerate(itertools.pairwise(rows)):
            if (before.comparable, before.arm.replicas) != (row.comparable, row.arm.replicas):
                axes.axhline(height + 0.5, color=RULE, linewidth=0.8)

    return plot("throughput", title, caption, draw, height_in=1.0 + 0.31 * len(rows))


def _set_apart(rows: Sequence[ArmRow]) -> str:
    """How to tell arms that are not comparable; empty where there are none."""
    if all(row.comparable for row in rows):
        return ""
    return " Grey with hollow marks: not comparable."


def _run_rates(summary: Summary, row: ArmRow) -> list[float]:
    rates = [run.figures.throughput_examples_s.value for run in summary.runs if run.arm == row.arm]
    return [rate for rate in rates if rate is not None]


def _dots(axes: Any, height: int, row: ArmRow, rates: list[float], style: Style) -> None:
    spread = row.throughput
    assert spread is not None
    axes.plot(
        [spread.lowest, spread.highest],
        [height, height],
        color=style.color,
        linewidth=5,
        alpha=0.3,
        solid_capstyle="round",
    )
    axes.plot(
        rates,
        [height] * len(rates),
        style.marker,
        color=style.color,
        markersize=4.5,
        markerfacecolor=style.face,
        markeredgecolor=style.edge,
        markeredgewidth=style.edge_width,
    )
    axes.plot([spread.median] * 2, [height - 0.3, height + 0.3], color=INK, linewidth=1.6)


def scaling_plot(summary: Summary, styles: dict[str, Style]) -> Plot:
    """Median examples/s against replicas, with the line of perfect scaling from serial."""
    title = "Scaling with replicas"
    comparable = [row for row in summary.arms if row.comparable]
    groups = _groups(comparable)
    scaled = {group: rows for group, rows in groups.items() if len(rows) > 1}
    if not scaled:
        return Plot("scaling", title, "No comparable arm ran at two numbers of replicas.")
    sizes = sorted({row.arm.replicas for rows in scaled.values() for row in rows})
    serial = next((row for row in comparable if row.arm.label == summary.serial), None)
    base = serial.throughput if serial else None
    caption = (
        "Median of examples/s, with the range of the runs; the global batch is the same. "
        "Marks of one size stand side by side, so that none hides another."
    )
    if len(comparable) < len(summary.arms):
        caption += " Arms that are not comparable are left out."
    if base:
        caption += f" Dashed: {plain(summary.serial)} times the number of replicas."

    def draw(figure: "Figure") -> None:
        axes = figure.subplots()
        if base:
            line = [1, max(sizes)]
            axes.plot(
                line,
                [base.median * n for n in line],
                color=MUTED,
                linestyle=(0, (4, 3)),
                linewidth=1.2,
                label=series(f"ideal, from {summary.serial}"),
            )
        for place, (group, rows) in enumerate(scaled.items()):
            # Groups stand a little apart, or their ranges would hide each other.
            shift = 1 + 0.012 * (place - (len(scaled) - 1) / 2) * math.log2(max(sizes) * 2)
            _scaling_line(axes, rows, styles[group], group, shift)
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        name_numbers(axes.yaxis)
        axes.set_xlabel("replicas")
        axes.set_ylabel("examples/s")
        legend(figure, [axes])

    return plot("scaling", title, caption, draw, height_in=3.3 + legend_in(scaled))


def _scaling_line(
    axes: Any, rows: Sequence[ArmRow], style: Style, group: str, shift: float
) -> None:
    spreads = [(row.arm.replicas, row.throughput) for row in rows if row.throughput]
    middle = [spread.median for _, spread in spreads]
    axes.errorbar(
        [size * shift for size, _ in spreads],
        middle,
        yerr=[
            [spread.median - spread.lowest for _, spread in spreads],
            [spread.highest - spread.median for _, spread in spreads],
        ],
        color=style.color,
        marker=style.marker,
        linestyle=style.dash,
        markersize=5,
        linewidth=1.5,
        elinewidth=1,
        capsize=2.5,
        label=series(group),
    )


def _groups(arms: Sequence[ArmRow]) -> dict[str, list[ArmRow]]:
    """Arms with a throughput by group, by size within it."""
    groups: dict[str, list[ArmRow]] = {}
    for row in sorted(arms, key=lambda row: row.arm.replicas):
        if row.throughput:
            groups.setdefault(row.arm.group, []).append(row)
    return {
        group: rows for group, rows in sorted(groups.items(), key=lambda item: _rank(arms, item))
    }


def _rank(arms: Sequence[ArmRow], item: tuple[str, list[ArmRow]]) -> int:
    return next(index for index, row in enumerate(arms) if row.arm.group == item[0])


def step_time_plot(summary: Summary, styles: dict[str, Style]) -> Plot:
    """Distribution of step times, one panel for each number of replicas."""
    title = "Step times"
    times: dict[str, list[float]] = {row.arm.label: [] for row in summary.arms}
    for one in summary.runs:
        if one.run.outcome.completed:
            times[one.arm.label] += step_times_ms(one.run)
    rows = [row for row in summary.arms if times[row.arm.label]]
    if not rows:
        return Plot("steps", title, "No run has step times.")

    def draw_arm(axes: Any, row: ArmRow, style: Style) -> None:
        # A hundred quantiles draw the same line as ten thousand steps.
        xs, ys = _quantiles(times[row.arm.label])
        axes.plot(
            xs,
            ys,
            color=style.color,
            linestyle=style.dash,
            marker=style.marker,
            markersize=3.5,
            markerfacecolor=style.face,
            markevery=(7, 20),
            linewidth=1.4,
            drawstyle="steps-post",
            label=series(row.arm.group),
        )

    def finish(axes: Any) -> None:
        axes.set_xscale("log")
        name_numbers(axes.xaxis, log=True)
        axes.set_ylim(0, 1)
        axes.set_ylabel("share of steps")

    caption = (
        "Share of steps that took at most so long, all counted steps of all completed runs; "
        "logarithmic. Steeper is steadier, further left is faster."
    )
    caption += _set_apart(rows)
    return panels("steps", title, caption, rows, styles, draw_arm, finish, "step time, ms")


def _quantiles(values: Sequence[float]) -> tuple[list[float], list[float]]:
    """The empirical distribution, as (time, share of steps that took at most so long)."""
    ordered = sorted(values)
    count = min(QUANTILES, len(ordered))
    ranks = [-(-(index + 1) * len(ordered) // count) for index in range(count)]
    # A step that took less than a tick of the clock has no place on a logarithmic axis.
    values = [max(ordered[rank - 1], SHORTEST_MS) for rank in ranks]
    return [values[0], *values], [0.0, *(rank / len(ordered) for rank in ranks)]


def quality_plot(summary: Summary, styles: dict[str, Style]) -> Plot:
    """Validation metric against wall time, each run a line."""
    metric = summary.quality_metric or "loss"
    title = f"Validation {plain(metric)} over time"
    curves: dict[str, list[tuple[list[float], list[float]]]] = {}
    for one in summary.runs:
        chief = chief_of(one.run)
        if one.run.outcome.completed and chief is not None:
            epochs = [epoch for epoch in chief.epochs if metric in epoch.validation]
            curves.setdefault(one.arm.label, []).append(
                (
                    [epoch.end_since_process_start_s for epoch in epochs],
                    [epoch.validation[metric] for epoch in epochs],
                )
            )
    rows = [row for row in summary.arms if any(xs for xs, _ in curves.get(row.arm.label, []))]
    if not rows:
        return Plot("quality", title, f"No run has a validation metric {plain(metric)}.")

    def draw_arm(axes: Any, row: ArmRow, style: Style) -> None:
        for index, (xs, ys) in enumerate(curves[row.arm.label]):
            axes.plot(
                xs,
                ys,
                color=style.color,
                linestyle=style.dash,
                marker=style.marker,
                markersize=3,
                markerfacecolor=style.face,
                linewidth=1,
                alpha=0.85,
                label="" if index else series(row.arm.group),
            )

    def finish(axes: Any) -> None:
        axes.set_ylabel(wrapped(metric, LEGEND_WIDTH, max_lines=2))
        if summary.quality_target is not None:
            axes.axhline(
                summary.quality_target,
                color=MUTED,
                linestyle=(0, (4, 3)),
                linewidth=1.2,
                label=f"target {summary.quality_target:g}",
            )

    caption = "Each line is one run, each mark the end of an epoch and its validation. "
    caption += "Time counts from the start of the process, start-up included."
    caption += _set_apart(rows)
    return panels(
        "quality", title, caption, rows, styles, draw_arm, finish, "s since the process started"
    )
