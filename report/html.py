"""The report as one HTML page: nothing is fetched, nothing is run."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from report.definitions import DEFINITIONS, NO_INTERVALS
from report.drawing import Plot
from report.view import View
from report.words import pieces, plain, plural

TEMPLATES = Path(__file__).parent / "templates"


def render_html(view: View, plots: Sequence[Plot]) -> str:
    """The whole page."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_clean,
    )
    environment.filters["breaks"] = breaks
    environment.filters["ranges"] = ranges
    text: str = environment.get_template("report.html.j2").render(
        view=view,
        plots=plots,
        not_run=view.comparison.not_run,
        definitions=DEFINITIONS,
        no_intervals=NO_INTERVALS,
        plural=plural,
    )
    return text.lstrip()


def _clean(value: Any) -> Any:
    """Control characters have no place in HTML; markup made here is left alone."""
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def breaks(text: str) -> Markup:
    """A name that may be broken where a reader would."""
    return Markup("<wbr>").join(escape(piece) for piece in pieces(plain(text)))


def ranges(text: str) -> Markup:
    """A text in which a range, a count, a 1e-15 is never broken, and names are broken well."""
    parts = re.split(r"(\[[^\]]*\]|n=\d+(?: of \d+)?|\d\.\de[+-]\d+)", plain(text))
    return Markup("").join(
        Markup("<span>{}</span>").format(part) if index % 2 else breaks(part)
        for index, part in enumerate(parts)
    )
