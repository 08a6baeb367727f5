"""Plots of the breakdown of a step, and of the collectives within it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ringside.report.drawing import (
    DASHES,
    INK,
    MARKERS,
    MUTED,
    SERIES,
    Plot,
    legend,
    legend_in,
    name_numbers,
    plot,
    series,
)
from ringside.report.sections.breakdown import Breakdowns
from ringside.report.sections.communication import OPERATIONS, models_of, timings_by_operation
from ringside.report.words import stack_name
from ringside.stats.collectives import CostModel, predicted_seconds, times_of
from ringside_core.specs import Communication, Timing
from ringside_core.text import exact_byte_size, wrapped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL_WIDTH = 21
POINTS = 64  # of a model's line
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "++++", "oooo", "----")


def breakdown_plot(found: Breakdowns | None) -> Plot:
    """The parts of a step of each arm, stacked; parts that save time are left of zero."""
    title = "Parts of a step"
    if found is None or not found.arms:
        return Plot("breakdown", title, "Not measured.")
    names = list(dict.fromkeys(part.name for one in found.arms for part in one.parts))
    names.append("remainder")
    rows = [
        {
            **{part.name: part.ms.value for part in one.parts},
            "remainder": one.remainder.value,
        }
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


def communication_plot(found: Communication | None) -> Plot:
    """Time of each collective against its size: marks are measured, lines are the model."""
    title = "Collectives against their models"
    stacks = [stack for stack in (found.stacks if found else ()) if stack.timings]
    timed = {stack.stack: timings_by_operation(stack) for stack in stacks}
    shown = [name for name in OPERATIONS if any(name in of_stack for of_stack in timed.values())]
    if found is None or not shown:
        return Plot("communication", title, "Not measured.")
    models = models_of(found)
    caption = (
        "Marks: mean time of one operation over the repetitions, from the least to the most of a "
        "rank. Lines: the fitted model. Both axes are logarithmic, and the same in "
        "each part."
    )
    every = [timing for stack in stacks for timing in stack.timings]
    sizes = sorted({timing.size_bytes for timing in every})

    def draw(figure: "Figure") -> None:
        parts = figure.subplots(len(shown), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, operation in zip(parts, shown, strict=True):
            for index, (stack, timings) in enumerate(timed.items()):
                if operation in timings:
                    model = models.get((stack, operation))
                    _collective(axes, index, stack_name(stack), timings[operation], model)
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_xticks(sizes[::2], [exact_byte_size(size) for size in sizes[::2]])
            axes.minorticks_off()
            name_numbers(axes.yaxis, log=True, subs=(1.0,))
            axes.set_ylabel("time, ms")
            axes.set_title(OPERATIONS[operation], loc="left")
        parts[-1].set_xlabel("size of the array of each rank")
        legend(figure, parts)

    height_in = 1.0 + 2.1 * len(shown) + legend_in(timed)
    return plot("communication", title, caption, draw, height_in=height_in)


def _collective(
    axes: Any, index: int, stack: str, timings: Sequence[Timing], model: CostModel | None
) -> None:
    sizes = [timing.size_bytes for timing in timings]
    times = [times_of(timing) for timing in timings]
    color = SERIES[index % len(SERIES)]
    middle = [1e3 * one.mean_s for one in times]
    axes.errorbar(
        sizes,
        middle,
        yerr=[
            [1e3 * (one.mean_s - one.shortest_s) for one in times],
            [1e3 * (one.longest_s - one.mean_s) for one in times],
        ],
        color=color,
        marker=MARKERS[index % len(MARKERS)],
        linestyle="none",
        markersize=4.5,
        elinewidth=1,
        label=series(stack),
    )
    if model is not None:
        first, last = sizes[0], sizes[-1]
        between = [first * (last / first) ** (k / POINTS) for k in range(POINTS + 1)]
        axes.plot(
            between,
            [1e3 * predicted_seconds(model, size) for size in between],
            color=color,
            linestyle=DASHES[index % len(DASHES)],
            linewidth=1.2,
        )
