"""Numbers, sizes, times, lists and names as a reader sees them, the same in every output."""

import io
import math
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

# What terminals obey and no page may hold: escape sequences, then all other control characters.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
MOST_DIGITS = 18  # every whole number of so many digits fits into 64 bits


def print_anything() -> None:
    """Let this process print any text: what a terminal or a file cannot hold becomes `?`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with suppress(OSError):  # what lies below it was exchanged, and cannot seek
                stream.reconfigure(errors="replace")


def is_whole_number(text: str) -> bool:
    """Whether this is a number in plain digits that fits into 64 bits.

    Ask before calling `int`: `str.isdigit` also takes `²`, which `int` refuses, and the digits of
    other scripts; and `int` refuses more than 4,300 digits.
    """
    return text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS


def decimals_for(value: float) -> int:
    """Decimals that show at least three significant digits."""
    if value == 0 or not math.isfinite(value):
        return 0
    return max(0, 2 - math.floor(math.log10(abs(value))))


def number(value: float, decimals: int | None = None) -> str:
    """A number with at least three significant digits: `12,345` and `0.0123`."""
    places = decimals_for(value) if decimals is None else decimals
    return f"{value:,.{places}f}"


def percent(share: float) -> str:
    """A share with two significant digits: 0.062 is `6.2 %`, 0.31 is `31 %`, 1.2 is `120 %`."""
    if share == 0 or not math.isfinite(share):
        return f"{100 * share:.0f} %"
    places = max(0, 1 - math.floor(math.log10(abs(100 * share))))
    return f"{100 * share:.{min(places, 2)}f} %"


def duration(seconds: float) -> str:
    """A time in the unit that suits it: `40 s`, `15 min`, `1.5 h`."""
    if seconds < 100:
        size_s, unit = 1, "s"
    elif seconds < 100 * 60:
        size_s, unit = 60, "min"
    else:
        size_s, unit = 3600, "h"
    return f"{f'{seconds / size_s:.1f}'.removesuffix('.0')} {unit}"


def byte_size(count: float) -> str:
    """Bytes with at most three significant digits: `8 B`, `4 KiB`, `62.8 GiB`."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 2**power:
            digits, point, decimals = number(count / 2**power).partition(".")
            return f"{digits}{(point + decimals).rstrip('.0')} {unit}"
    return f"{count:,.0f} B"


def exact_byte_size(count: int) -> str:
    """Bytes, not rounded: `4 KiB`, `6,148 B`; in the largest unit that gives a whole number."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count and count % 2**power == 0:
            return f"{count >> power:,} {unit}"
    return f"{count:,} B"


def plural(count: int, noun: str) -> str:
    """A count with its noun: `1 run`, `3 runs`, `2 processes`."""
    ending = "" if count == 1 else "es" if noun.endswith(("s", "nch")) else "s"
    return f"{count} {noun}{ending}"


def listed(names: Sequence[str], *, limit: int = 6) -> str:
    """`a, b and c`; beyond the limit it says how many more there are."""
    shown = list(names[:limit])
    if len(names) > limit:
        shown.append(f"{len(names) - limit} more")
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + f" and {shown[-1]}"


def file_name(label: str, *, longest: int | None = None) -> str:
    """The label of an arm or a stack as a file name: `mirrored ×2` is `mirrored-x2`.

    Two labels may get the same name; where that matters, the caller adds a number.

    Args:
        label: any text.
        longest: characters at which the name is cut.
    """
    kept = (c if c.isalnum() or c in "._=" else "-" for c in label.replace(" ×", "-x"))
    return "".join(kept)[:longest]


def plain(text: str) -> str:
    """The text without escape sequences and control characters; tab and newline stay."""
    return _CONTROLS.sub("", _ESCAPES.sub("", text.replace("\r\n", "\n")))


def pieces(label: str) -> list[str]:
    """A long name, cut where it may be broken: after `_`, `:`, `=`, `,`, `/` and spaces."""
    return [piece for piece in re.split(r"(?<=[_:=,/ ])", label) if piece]


def wrapped(label: str, width: int, *, max_lines: int = 99) -> str:
    """The name over several lines of at most `width` characters; longer pieces are cut.

    If the name needs more than `max_lines`, its middle is left out: the end tells sizes and
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


def epoch_line(
    number: int, train: Mapping[str, float], validation: Mapping[str, float], per_second: float
) -> str:
    """How an epoch went: its metrics in training and validation, and examples per second.

    Args:
        number: of the epoch, from 1.
        train: metrics by name.
        validation: the same of the held-out examples; empty: there are none.
        per_second: examples trained ÷ time.
    """
    values = {**train, **{f"val_{name}": value for name, value in validation.items()}}
    text = "  ".join(f"{name} {value:.4f}" for name, value in values.items())
    return f"epoch {number}: {text}  {per_second:,.0f} examples/s"
