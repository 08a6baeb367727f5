"""Views of the made-up comparisons, made once for all tests."""

import functools
import io

from rich.console import Console, RenderableType

from ringside.report.blocks import Section
from ringside.report.drawing import Plot
from ringside.report.plots import plots_of
from ringside.report.view import View, view_of
from tests.unit.report.bout import bout, mixed_bout


@functools.cache
def bout_view() -> View:
    """Of the comparison in which everything is there."""
    return view_of(bout())


@functools.cache
def mixed_view() -> View:
    """Of the one in which some arms are not comparable."""
    return view_of(mixed_bout())


@functools.cache
def bout_plots() -> dict[str, Plot]:
    """By name."""
    return {plot.name: plot for plot in plots_of(bout_view())}


def section_of(view: View, name: str) -> Section:
    """The section of this name."""
    return next(section for section in view.sections if section.name == name)


def printed(renderable: RenderableType, width: int = 100) -> str:
    """As a terminal of this width shows it."""
    terminal = Console(width=width, record=True, file=io.StringIO())
    terminal.print(renderable)
    return terminal.export_text()
