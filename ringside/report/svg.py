"""A matplotlib figure as SVG that belongs to the page around it."""

import html
import io
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

XLINK = "http://www.w3.org/1999/xlink"
# Stand-ins that matplotlib takes for colours, and that become CSS variables of the page.
INK, MUTED, RULE = "#010203", "#020304", "#030405"
SERIES = (
    "#0072b2",
    "#d55e00",
    "#00855f",
    "#b8589a",
    "#a87400",
    "#6a4cc0",
    "#1090a8",
    "#5f6b7a",
)
_VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    RULE: "--rule",
    **{color: f"--series-{index}" for index, color in enumerate(SERIES)},
}


def to_svg(figure: "Figure", *, name: str, label: str) -> str:
    """The figure as one <svg> element.

    Args:
        figure: drawn.
        name: unique on the page; stands before every id.
        label: read aloud in place of the picture.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    stream = io.StringIO()
    canvas: Any = FigureCanvasSVG(figure)
    canvas.print_svg(stream)
    svg = stream.getvalue()
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
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
