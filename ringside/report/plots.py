"""The plots of a report: throughput, scaling, step times, parts, quality."""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ringside.report.drawing import (
    INK,
    LEGEND_WIDTH,
    MUTED,
    RULE,
    SERIES,
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
from ringside.report.ranking import ranked, twins_aside
from ringside.report.sections.breakdown import Breakdowns
from ringside.report.sections.timeline import PARTS
from ringside.report.view import View
from ringside.stats.run_figures import alone_start_s, startup_s
from ringside.stats.step_times import chief_of, step_times_ms
from ringside.stats.summary import ArmRow, Summary, rates_of
from ringside_core.specs.timeline import Timeline
from ringside_core.text import number, plain, wrapped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL_WIDTH = 21
QUANTILES = 101
SHORTEST_MS = 0.001
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "++++", "oooo", "----")


def plots_of(view: View) -> list[Plot]:
    """All plots of a comparison."""
    summary = view.summary
    styles = styles_of(summary.arms)
    return [
        throughput_plot(summary, styles),
        scaling_plot(summary, styles, view.comparison.shared.scaling),
        step_time_plot(summary, styles),
        breakdown_plot(view.breakdown),
        quality_plot(summary, styles),
        *(timeline_plot(one) for one in (view.timeline,) if one),
    ]


def throughput_plot(summary: Summary, styles: dict[str, Style]) -> Plot:
    """Examples/s of each arm: every run a dot, mean and interval."""
    title = "Throughput of each arm"
    rows = [row for row in summary.arms if row.mean_throughput.value]
    if not rows:
        return Plot("throughput", title, "No run has a throughput.")
    # stable: arms keep their order within a size
    rows.sort(key=lambda row: (not row.comparable, row.arm.replicas))
    caption = (
        "Each dot is one run, the stroke the geometric mean, the bar its 95 % interval; "
        "a thin line means that there are too few launches for an interval."
    )
    if fastest := ranked(summary):
        most = number(fastest[0].mean_throughput.value or 0.0)
        caption += f" Highest: {plain(fastest[0].arm.label)}, {most} examples/s"
        caption += f"{twins_aside(summary)}."
    caption += _set_apart(rows)
    rates = {row.arm.label: [*rates_of(row.arm, summary.runs).values()] for row in rows}

    def draw(figure: "Figure") -> None:
        axes = figure.subplots()
        for height, row in enumerate(rows):
            _dots(axes, height, row, rates[row.arm.label], look_of(row, styles))
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
    apart = not all(row.comparable for row in rows)
    return " Grey with hollow marks: not comparable." if apart else ""


def _dots(axes: Any, height: int, row: ArmRow, rates: list[float], style: Style) -> None:
    spread, mean = row.spreads["throughput_examples_s"], row.mean_throughput
    inner = mean.interval
    bar = height - 0.1
    axes.plot(
        [inner.low, inner.high] if inner else [spread.lowest, spread.highest],
        [bar, bar],
        color=style.color,
        linewidth=6 if inner else 1.2,
        alpha=0.35,
        solid_capstyle="butt",
    )
    axes.plot(
        rates,
        [height + 0.24] * len(rates),
        style.marker,
        color=style.color,
        markersize=3,
        markerfacecolor=style.face,
        markeredgecolor=style.color if style.hollow else INK,
        markeredgewidth=1.0 if style.hollow else 0.4,
    )
    axes.plot([mean.value] * 2, [bar - 0.22, bar + 0.22], color=INK, linewidth=1.6)


def scaling_plot(summary: Summary, styles: dict[str, Style], scaling: str) -> Plot:
    """Examples/s against replicas, with the line of perfect scaling from serial."""
    title = f"{scaling.capitalize()} scaling with replicas"
    comparable = [row for row in summary.arms if row.comparable and not row.arm.twin_of]
    groups: dict[str, list[ArmRow]] = {row.arm.group: [] for row in comparable}
    for row in sorted(comparable, key=lambda row: row.arm.replicas):
        groups[row.arm.group] += [row] if row.mean_throughput.value else []
    scaled = {group: rows for group, rows in groups.items() if len(rows) > 1}
    if not scaled:
        return Plot("scaling", title, "No comparable arm ran at two numbers of replicas.")
    sizes = sorted({row.arm.replicas for rows in scaled.values() for row in rows})
    serial = next((row for row in comparable if row.arm.label == summary.serial), None)
    base = serial.mean_throughput.value if serial else None
    held = "the global batch" if scaling == "strong" else "the batch of each replica"
    caption = (
        f"Geometric mean of examples/s with its 95 % interval; {held} is the same at every size. "
        "Marks of one size stand side by side, so that none hides another."
    )
    if any(not row.comparable for row in summary.arms):
        caption += " Arms that are not comparable are left out."
    if base:
        caption += f" Dashed: {plain(summary.serial)} times the number of replicas."

    def draw(figure: "Figure") -> None:
        axes = figure.subplots()
        if base:
            line = [1, max(sizes)]
            axes.plot(
                line,
                [base * n for n in line],
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
    known = [
        (row.arm.replicas * shift, row.mean_throughput.value, row.mean_throughput.interval)
        for row in rows
        if row.mean_throughput.value is not None
    ]
    axes.errorbar(
        [size for size, _, _ in known],
        [value for _, value, _ in known],
        yerr=[
            [value - within.low if within else 0.0 for _, value, within in known],
            [within.high - value if within else 0.0 for _, value, within in known],
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


def step_time_plot(summary: Summary, styles: dict[str, Style]) -> Plot:
    """Distribution of step times, one panel for each number of replicas."""
    title = "Step times"
    times: dict[str, list[float]] = {row.arm.label: [] for row in summary.arms}
    for one in summary.runs:
        if one.run.outcome.completed and one.used and one.arm.label in times:
            times[one.arm.label] += step_times_ms(one.run)
    rows = [row for row in summary.arms if times[row.arm.label] and not row.arm.twin_of]
    if not rows:
        return Plot("steps", title, "No run has step times.")

    def draw_arm(axes: Any, row: ArmRow, style: Style) -> None:
        # A hundred quantiles draw the same line as ten thousand steps.
        xs, ys = _quantiles(times[row.arm.label])
        axes.plot(xs, ys, **_line(row, style), markevery=(7, 20), drawstyle="steps-post")

    def finish(axes: Any) -> None:
        axes.set_xscale("log")
        name_numbers(axes.xaxis, log=True)
        axes.set_ylim(0, 1)
        axes.set_ylabel("share of steps")

    caption = (
        "Share of the steps that took at most this time, over all counted steps of all completed "
        "runs; the axis is logarithmic. A steeper curve is steadier, one further left is faster."
    )
    caption += _set_apart(rows)
    return panels("steps", title, caption, rows, styles, draw_arm, finish, "step time, ms")


def _line(row: ArmRow, style: Style) -> dict[str, Any]:
    return {
        "color": style.color,
        "linestyle": style.dash,
        "marker": style.marker,
        "markersize": 3.5,
        "markerfacecolor": style.face,
        "linewidth": 1.3,
        "label": series(row.arm.group),
    }


def _quantiles(values: Sequence[float]) -> tuple[list[float], list[float]]:
    """The empirical distribution, as (time, share of steps that took at most so long)."""
    ordered = sorted(values)
    count = min(QUANTILES, len(ordered))
    ranks = [-(-(index + 1) * len(ordered) // count) for index in range(count)]
    # A step that took less than a tick of the clock has no place on a logarithmic axis.
    values = [max(ordered[rank - 1], SHORTEST_MS) for rank in ranks]
    return [values[0], *values], [0.0, *(rank / len(ordered) for rank in ranks)]


def breakdown_plot(found: Breakdowns | None) -> Plot:
    """The parts of a step of each arm, stacked; parts that save time are left of zero."""
    title = "Parts of a step"
    if found is None or not found.arms:
        return Plot("breakdown", title, "Not measured.")
    names = list(dict.fromkeys(part.name for one in found.arms for part in one.parts))
    names.append("remainder")
    rows = [
        {**{part.name: part.ms.value for part in one.parts}, "remainder": one.remainder.value}
        for one in found.arms
    ]
    caption = (
        "Milliseconds for one global batch; the bars of an arm add up to the whole, which the "
        "stroke marks. Negative parts are left of zero."
    )

    def draw(figure: "Figure") -> None:
        axes = figure.subplots()
        _stacked(axes, names, rows)
        for height, one in enumerate(found.arms):
            if one.whole.value is not None:
                axes.plot([one.whole.value] * 2, [height - 0.42, height + 0.42], color=INK)
        axes.axvline(0, color=MUTED, linewidth=0.8)
        labels = [wrapped(one.arm, LABEL_WIDTH, max_lines=2) for one in found.arms]
        axes.set_yticks(range(len(rows)), labels)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlabel("ms per global batch")
        axes.grid(axis="y", visible=False)
        name_numbers(axes.xaxis)
        legend(figure, [axes])

    height_in = 1.0 + 0.42 * len(rows) + legend_in(names)
    return plot("breakdown", title, caption, draw, height_in=height_in)


def _stacked(axes: Any, names: Sequence[str], rows: Sequence[Mapping[str, float | None]]) -> None:
    """The parts of each row end to end; every part has a hatch of its own."""
    right, left = [0.0] * len(rows), [0.0] * len(rows)
    for index, name in enumerate(names):
        values = [row.get(name) or 0.0 for row in rows]
        starts = [right[k] if value >= 0 else left[k] for k, value in enumerate(values)]
        axes.barh(
            range(len(rows)),
            values,
            left=starts,
            height=0.6,
            color=SERIES[index % len(SERIES)] if name != "remainder" else "none",
            hatch=HATCHES[index % len(HATCHES)],
            edgecolor=INK,
            linewidth=0.5,
            label=series(name),
        )
        for k, value in enumerate(values):
            right[k] += max(value, 0.0)
            left[k] += min(value, 0.0)


def timeline_plot(timeline: Timeline) -> Plot:
    """A step of each traced arm on one time axis; each process has a row for each part."""
    title = "One step"
    stacks = timeline.undisturbed
    caption = (
        "The step of median length of each arm, from its beginning in the first process. Bars: "
        "when at least one operation of a part ran."
    )

    def draw(figure: "Figure") -> None:
        heights = [len(stack.lanes) for stack in stacks]
        every = figure.subplots(len(stacks), 1, sharex=True, squeeze=False, height_ratios=heights)[
            :, 0
        ]
        for axes, stack in zip(every, stacks, strict=True):
            k = stack.middle
            zero = min(lane.steps[k][0] for lane in stack.lanes)
            rows = [(lane, part) for lane in stack.lanes for part in PARTS]
            for height, (lane, part) in enumerate(rows):
                spans = lane.spans(k, part)
                axes.broken_barh(
                    [((begin - zero) / 1e6, (end - begin) / 1e6) for begin, end in spans],
                    (height - 0.4, 0.8),
                    color=MUTED if part == "waiting" else SERIES[PARTS.index(part)],
                    linewidth=0,
                )
            for row in range(len(PARTS), len(rows), len(PARTS)):
                axes.axhline(row - 0.5, color=RULE, linewidth=0.8)
            labels = [f"{lane.task} {part}" if part == PARTS[0] else part for lane, part in rows]
            axes.set_yticks(range(len(rows)), labels)
            axes.set_ylim(len(rows) - 0.4, -0.6)
            axes.set_title(wrapped(stack.label, LEGEND_WIDTH, max_lines=2), loc="left")
            axes.grid(axis="y", visible=False)
        every[-1].set_xlim(left=0)
        every[-1].set_xlabel("ms")
        name_numbers(every[-1].xaxis)

    rows = len(PARTS) * sum(len(stack.lanes) for stack in stacks)
    height_in = 0.6 + 0.35 * len(stacks) + 0.17 * rows
    return plot("timeline", title, caption, draw, height_in=height_in)


def quality_plot(summary: Summary, styles: dict[str, Style]) -> Plot:
    """Validation metric against wall time, each arm a line through the medians of its runs."""
    metric = summary.quality_metric or "loss"
    title = f"Validation {plain(metric)} over time"
    curves = _curves(summary, metric)
    rows = [
        row
        for row in summary.arms
        if any(xs for xs, _ in curves.get(row.arm.label, [])) and not row.arm.twin_of
    ]
    if not rows:
        return Plot("quality", title, f"No run has a validation metric {plain(metric)}.")

    def draw_arm(axes: Any, row: ArmRow, style: Style) -> None:
        own = curves[row.arm.label]
        epochs = range(max(len(xs) for xs, _ in own))
        # of each epoch the medians over the runs that have it
        xs, ys = (
            [statistics.median(one[axis][k] for one in own if k < len(one[axis])) for k in epochs]
            for axis in (0, 1)
        )
        axes.plot(xs, ys, **_line(row, style))

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

    caption = "Each mark is the end of an epoch and its validation, median over the runs. "
    caption += "Time counts from the command on, start-up included."
    caption += _set_apart(rows)
    return panels("quality", title, caption, rows, styles, draw_arm, finish, "s since the command")


def _curves(summary: Summary, metric: str) -> dict[str, list[tuple[list[float], list[float]]]]:
    """By arm, of each completed run that counts: seconds and quality at the end of each epoch."""
    curves: dict[str, list[tuple[list[float], list[float]]]] = {}
    runs = [one.run for one in summary.runs]
    for one in summary.runs:
        chief = chief_of(one.run)
        if one.used and one.run.outcome.completed and chief is not None:
            epochs = [epoch for epoch in chief.epochs if metric in epoch.validation]
            launch_s = one.run.launch_s(chief) or 0.0
            alone_s, own_s = alone_start_s(one.arm, runs), startup_s(one.run).value
            if alone_s is not None and own_s is not None:
                launch_s += alone_s - own_s  # as the times to the target in the tables
            curves.setdefault(one.arm.label, []).append(
                (
                    [launch_s + epoch.end_since_process_start_s for epoch in epochs],
                    [epoch.validation[metric] for epoch in epochs],
                )
            )
    return curves
