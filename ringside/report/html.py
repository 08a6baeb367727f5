"""The report as one HTML page: nothing is fetched, nothing is run."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from ringside.report.drawing import Plot
from ringside.report.sections.headline import Headline
from ringside.report.view import View
from ringside.report.words import times
from ringside_core.text import pieces, plain

TEMPLATES = Path(__file__).parent / "templates"
WIDTH, HEIGHT, MARGIN = 220, 34, 12  # of the picture of a ratio


def render_html(view: View, plots: Sequence[Plot]) -> str:
    """The whole page."""
    return rendered(
        "report.html.j2",
        eyebrow="Ringside comparison",
        plots={plot.name: plot for plot in plots},
        forest=forest_of(view.headline),
        **vars(view),
    )


def rendered(template: str, **values: Any) -> str:
    """A page from its template; every text in it is escaped."""
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
    environment.filters["times"] = times
    environment.filters["kind"] = lambda block: type(block).__name__
    text: str = environment.get_template(template).render(**values)
    return text.lstrip()


def _clean(value: Any) -> Any:
    """Control characters have no place in HTML; markup made here is left alone."""
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def breaks(text: str) -> Markup:
    """A name with places at which a line may break."""
    return Markup("<wbr>").join(escape(piece) for piece in pieces(plain(text)))


def ranges(text: str) -> Markup:
    """A text with `commands` set as such; a range, a count, a 1e-15 is never broken."""
    parts = re.split(r"(`[^`]+`|\[[^\]]*\]|n=\d+(?: of \d+)?|\d\.\de[+-]\d+)", plain(text))
    for index in range(1, len(parts), 2):
        command = parts[index].startswith("`")
        kept = Markup("<code>{}</code>" if command else "<span>{}</span>")
        parts[index] = kept.format(parts[index].strip("`"))
    return Markup("").join(part if index % 2 else breaks(part) for index, part in enumerate(parts))


def forest_of(headline: Headline) -> str:
    """Ratio and interval as SVG, on a logarithmic axis; the stroke at 1 means equal arms.

    A headline without an interval has no picture.
    """
    if not headline.ratio or not headline.interval:
        return ""
    interval = headline.interval
    low = math.log(min(1.0, interval.low))
    high = math.log(max(1.0, interval.high))
    pad = max(0.15 * (high - low), 0.01)

    def at(ratio: float) -> float:
        part = (math.log(ratio) - low + pad) / (high - low + 2 * pad)
        return MARGIN + (WIDTH - 2 * MARGIN) * part

    left, middle, right = at(interval.low), at(headline.ratio), at(interval.high)
    label = escape(f"{times(headline.ratio, interval)}, {headline.word}")
    return (
        f'<svg class="forest" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
        f'<path class="base" d="M{MARGIN} 13H{WIDTH - MARGIN}"/>'
        f'<path class="equal" d="M{at(1):.1f} 3V23"/>'
        f'<text x="{at(1):.1f}" y="32" text-anchor="middle">equal</text>'
        f'<path class="span" d="M{left:.1f} 13H{right:.1f}M{left:.1f} 8V18M{right:.1f} 8V18"/>'
        f'<circle cx="{middle:.1f}" cy="13" r="4.5"/></svg>'
    )
