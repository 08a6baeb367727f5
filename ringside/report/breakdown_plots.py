"""The plot of the breakdown of a step."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ringside.report.drawing import (
    INK,
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
from ringside_core.text import wrapped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL_WIDTH = 21
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "++++", "oooo", "----")


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
