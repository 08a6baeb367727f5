"""Numbers and names as a reader sees them; the same in every format."""

import math
import re
from collections.abc import Sequence

from measure.summary import Efficiency, Spread

# What terminals obey and no page may hold: escape sequences, then all other control characters.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
NOTHING = "–"


def plain(text: str) -> str:
    """The text without escape sequences and control characters; tab and newline stay."""
    return _CONTROLS.sub("", _ESCAPES.sub("", text.replace("\r\n", "\n")))


def decimals_for(value: float) -> int:
    """Decimals that show at least three digits that count."""
    if value == 0 or not math.isfinite(value):
        return 0
    return max(0, 2 - math.floor(math.log10(abs(value))))


def number(value: float, decimals: int | None = None) -> str:
    """At least three digits that count, thousands apart: 12,345 and 0.0123."""
    places = decimals_for(value) if decimals is None else decimals
    return f"{value:,.{places}f}"


def gib(value: float) -> float:
    """Bytes in GiB, 2**30 bytes."""
    return value / 2**30


def range_of(spread: Spread, *, scale: float = 1.0) -> str:
    """Lowest and highest and how many: `[11.2–12.9] n=3`; never to be read as an interval.

    Both have the decimals of the median, so that they are comparable at a glance.
    """
    count = f"n={spread.n}" if spread.n == spread.of else f"n={spread.n} of {spread.of}"
    if spread.n == 1:
        return f"{count}, no range"
    places = decimals_for(spread.median * scale)
    low, high = (number(v * scale, places) for v in (spread.lowest, spread.highest))
    return f"[{low}–{high}] {count}"


def percent(value: Efficiency) -> str:
    """An efficiency of 0.87 as 87 %."""
    return NOTHING if value.value is None else f"{100 * value.value:.0f} %"


def plural(count: int, noun: str) -> str:
    """`1 run`, `3 runs`."""
    endings = {"process": "processes"}
    return f"{count} {noun if count == 1 else endings.get(noun, noun + 's')}"


def listed(names: Sequence[str], *, limit: int = 6) -> str:
    """`a, b and c`; beyond the limit, how many more."""
    shown = list(names[:limit])
    if len(names) > limit:
        shown.append(f"{len(names) - limit} more")
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + f" and {shown[-1]}"


def pieces(label: str) -> list[str]:
    """A long name, cut where a reader would break it: after `_`, `:`, `=`, `,`, `/` and spaces."""
    return [piece for piece in re.split(r"(?<=[_:=,/ ])", label) if piece]


def wrapped(label: str, width: int, *, max_lines: int = 99) -> str:
    """The name over several lines of at most `width`; a piece that is longer is cut.

    Of a name that needs more lines than there are, the middle is left out: its end tells sizes and
    options apart.
    """
    lines = [""]
    for piece in pieces(" ".join(plain(label).split())):
        for start in range(0, len(piece), width):
            part = piece[start : start + width]
            if lines[-1] and len(lines[-1]) + len(part.rstrip()) > width:
                lines.append("")
            lines[-1] += part
    if len(lines) > max_lines:
        end = "".join(lines).rstrip()[1 - width :]
        lines = [*lines[: max_lines - 1], "…" + end]
    return "\n".join(line.rstrip() for line in lines)
