"""How every plot is drawn: style, panels, legend, and the way to SVG.

Series differ in colour, marker and dash, so that they stay apart in black and white and for
colour-blind readers (colours after Okabe and Ito 2008, darkened to a contrast of 3 on white). Inks
are written as CSS variables, so that one drawing serves light, dark and print.
"""

import html
import io
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ringside.stats.summary import ArmRow
from ringside_core.text import plural, wrapped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

XLINK = "http://www.w3.org/1999/xlink"
# Colours for matplotlib that later become CSS variables of the page.
INK, MUTED, RULE = "#010203", "#020304", "#030405"
SERIES = ["#0072b2", "#d55e00", "#00855f", "#b8589a", "#a87400", "#6a4cc0", "#1090a8", "#5f6b7a"]
_VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    RULE: "--rule",
    **{color: f"--series-{index}" for index, color in enumerate(SERIES)},
}
WIDTH_IN = 4.7
LEGEND_WIDTH = 30
MARKERS = "osD^vPX<>"
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.5)), (0, (6, 1.5, 1.5, 1.5)))
SETTINGS: dict[str, Any] = {
    "axes.edgecolor": MUTED,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "figure.facecolor": "none",
    "font.size": 8.5,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "legend.fontsize": 8,
    "svg.fonttype": "none",  # text stays text: it can be found, copied and read aloud
    "text.color": INK,
    "text.parse_math": False,  # a label with two $ is a label
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
}


@dataclass(frozen=True)
class Plot:
    """A drawing, with words for readers who cannot see it."""

    name: str
    title: str
    caption: str  # what is drawn; of an empty plot, why there is none
    svg: str = ""  # safe to put into a page as it is


@dataclass(frozen=True)
class Style:
    """How one group of arms looks in every plot; hollow: its marks have an edge only."""

    color: str
    marker: str
    dash: Any
    hollow: bool = False

    @property
    def face(self) -> str:
        """Colour within a mark."""
        return "none" if self.hollow else self.color


def styles_of(arms: Sequence[ArmRow]) -> dict[str, Style]:
    """A style for each group; the group without distribution has the colour of the text."""
    styles: dict[str, Style] = {}
    coloured = 0
    for row in arms:
        if row.arm.group in styles:
            continue
        index = len(styles)
        plainly = row.arm.capabilities.family == "none"
        color = INK if plainly else SERIES[coloured % len(SERIES)]
        coloured += not plainly
        styles[row.arm.group] = Style(
            color, MARKERS[index % len(MARKERS)], DASHES[index % len(DASHES)]
        )
    return styles


def look_of(row: ArmRow, styles: dict[str, Style]) -> Style:
    """The style of an arm's group; greyed and hollow where the arm is not comparable."""
    style = styles[row.arm.group]
    return style if row.comparable else replace(style, color=MUTED, hollow=True)


def panels(
    name: str,
    title: str,
    caption: str,
    rows: Sequence[ArmRow],
    styles: dict[str, Style],
    draw_arm: Callable[[Any, ArmRow, Style], None],
    finish: Callable[[Any], None],
    xlabel: str,
) -> Plot:
    """One panel for each number of replicas, with the same axes."""
    sizes = sorted({row.arm.replicas for row in rows})

    def draw(figure: "Figure") -> None:
        every = figure.subplots(len(sizes), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, size in zip(every, sizes, strict=True):
            for row in rows:
                if row.arm.replicas == size:
                    draw_arm(axes, row, look_of(row, styles))
            finish(axes)
            axes.set_title(plural(size, "replica"), loc="left")
        every[-1].set_xlabel(xlabel)
        legend(figure, every)

    groups = {row.arm.group for row in rows}
    height_in = 1.0 + 1.75 * len(sizes) + legend_in(groups)
    return plot(name, title, caption, draw, height_in=height_in)


def name_numbers(axis: Any, *, log: bool = False) -> None:
    """A few tick labels, written as in the tables: 15,000 and 0.5."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    axis.set_major_locator(
        LogLocator(subs=(1.0, 2.0, 5.0)) if log else MaxNLocator(5, steps=[1, 2, 2.5, 5, 10])
    )
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def series(group: str) -> str:
    """The label of a group's artists; matplotlib leaves out those that begin with an underscore."""
    return "\u200b" + group  # a zero-width space


def legend_in(groups: Collection[str]) -> float:
    """Height of the legend of these groups in two columns, inches."""
    lines = sum(1 + (len(group) > LEGEND_WIDTH) for group in groups)
    return 0.1 * (lines + 2)


def legend(figure: "Figure", every: Iterable[Any]) -> None:
    """One legend below, each series once, its name over two lines at most."""
    handles: dict[str, Any] = {}
    for axes in every:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    names = (label.removeprefix("\u200b") for label in handles)
    figure.legend(
        list(handles.values()),
        [wrapped(name, LEGEND_WIDTH, max_lines=2) for name in names],
        loc="outside lower left",
        ncols=2,
        frameon=False,
        handlelength=2.6,
        columnspacing=1.2,
    )


def plot(
    name: str, title: str, caption: str, draw: Callable[["Figure"], None], *, height_in: float
) -> Plot:
    """Draw on a new figure; no state of matplotlib is changed for others."""
    import matplotlib
    from matplotlib.figure import Figure

    # First matplotlib's own defaults: a person's matplotlibrc must not change a report.
    with matplotlib.rc_context(), warnings.catch_warnings():
        # The reader's browser has the glyphs that matplotlib's own font lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        matplotlib.rcdefaults()
        parameters: Any = matplotlib.rcParams
        parameters.update({**SETTINGS, "svg.hashsalt": name})
        figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
        draw(figure)
        svg = _svg(figure, name=name, label=f"{title}. {caption}")
    return Plot(name, title, caption, svg)


def _svg(figure: "Figure", *, name: str, label: str) -> str:
    """The figure as one <svg> element; the name stands before every id, the label is read aloud."""
    stream = io.StringIO()
    none = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(stream, format="svg", metadata=none)
    svg = stream.getvalue()
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    # Its style sheet would hold for the whole page; report.css says the same for plots only.
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<[^>]*>", lambda tag: _tag(tag[0], name), svg)
    view = re.search(r'viewBox="[^"]*"', svg)
    assert view is not None
    spoken = html.escape(label, quote=True)
    head = f'<svg {view[0]} role="img" aria-label="{spoken}" xmlns:xlink="{XLINK}">'
    return head + svg[svg.index(">") + 1 :]


def _tag(tag: str, name: str) -> str:
    """One tag: ids that no other plot of the page has, inks and fonts of the page."""
    tag = re.sub(r'\bid="([^"]*)"', rf'id="{name}-\1"', tag)
    tag = re.sub(r'\bhref="#([^"]*)"', rf'href="#{name}-\1"', tag)
    tag = re.sub(r"url\(#([^)]*)\)", rf"url(#{name}-\1)", tag)
    tag = re.sub("|".join(_VARIABLES), lambda found: f"var({_VARIABLES[found[0]]})", tag)
    return re.sub(r" ?font-family:[^;\"]*;?", "", tag)
