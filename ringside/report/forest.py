"""A ratio and its interval as a small picture: the stroke at 1 is where two arms are equal."""

import html
import math
from collections.abc import Sequence

from ringside.report.sections.headline import Headline
from ringside.report.words import times

WIDTH, HEIGHT, MARGIN = 220, 34, 12


def forest_of(headlines: Sequence[Headline]) -> dict[int, str]:
    """SVG by number of replicas, all on one logarithmic axis; none where there is no interval."""
    drawn = [one for one in headlines if one.ratio and one.interval]
    if not drawn:
        return {}
    ends = [1.0]
    for one in drawn:
        assert one.interval is not None
        ends += [one.interval.low, one.interval.high]
    low, high = math.log(min(ends)), math.log(max(ends))
    pad = max(0.15 * (high - low), 0.01)
    return {one.replicas: _svg(one, low - pad, high + pad) for one in drawn}


def _svg(one: Headline, low: float, high: float) -> str:
    assert one.interval is not None and one.ratio is not None

    def at(ratio: float) -> float:
        return MARGIN + (WIDTH - 2 * MARGIN) * (math.log(ratio) - low) / (high - low)

    left, middle, right = at(one.interval.low), at(one.ratio), at(one.interval.high)
    label = html.escape(f"{times(one.ratio, one.interval)}, {one.word}", quote=True)
    return (
        f'<svg class="forest" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
        f'<path class="base" d="M{MARGIN} 13H{WIDTH - MARGIN}"/>'
        f'<path class="equal" d="M{at(1):.1f} 3V23"/>'
        f'<text x="{at(1):.1f}" y="32" text-anchor="middle">equal</text>'
        f'<path class="span" d="M{left:.1f} 13H{right:.1f}M{left:.1f} 8V18M{right:.1f} 8V18"/>'
        f'<circle cx="{middle:.1f}" cy="13" r="4.5"/></svg>'
    )
