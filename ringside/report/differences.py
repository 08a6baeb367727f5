"""Where two texts or two values differ, so that a reader sees it at once."""

import difflib
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ringside_core.text import listed

SHOWN = 120  # characters of a long text that are shown
BEFORE = 40  # of these before the first character that differs
WINDOW = 1000  # lines of a text that are compared where lines were put in or taken out
Pair = tuple[int, str | None, str | None]  # number of the line, found, expected


@dataclass(frozen=True)
class Difference:
    """One thing that does not agree: what is there, and what should be."""

    file: str
    place: str
    found: str
    expected: str

    def __str__(self) -> str:
        pairs = enumerate(zip(self.found, self.expected, strict=False))
        shorter = min(len(self.found), len(self.expected))
        first = next((i for i, (a, b) in pairs if a != b), shorter)
        found, expected = (_cut(text, first) for text in (self.found, self.expected))
        return f"{self.file}: {self.place}: {found} → {expected}"


def line_differences(file: str, found: str, expected: str) -> Iterator[Difference]:
    """Each line in which two texts differ; of a line that one of them lacks, `nothing`.

    Where lines were put in or taken out, and much else was changed, only the first are told.
    """
    ours, theirs = found.split("\n"), expected.split("\n")
    heads = theirs[0] if file.endswith(".csv") else ""
    pairs: Iterable[Pair] = zip(itertools.count(1), ours, theirs, strict=False)
    if len(ours) != len(theirs):
        pairs = _shifted(ours, theirs)
    for number, one, other in pairs:
        if one != other:
            place = f"line {number}{_cells(heads, one or '', other or '')}"
            told, should = ("nothing" if line is None else line for line in (one, other))
            yield Difference(file, place, told, should)


def _shifted(ours: list[str], theirs: list[str]) -> Iterator[Pair]:
    """Lines beside each other, where one text has more of them.

    What both begin and end with is left out. difflib needs quadratic time, so it sees no more of
    the rest than WINDOW lines of each text.
    """
    shorter = min(len(ours), len(theirs))
    start = next((i for i in range(shorter) if ours[i] != theirs[i]), shorter)
    left = shorter - start
    same = next((i for i in range(left) if ours[-1 - i] != theirs[-1 - i]), left)
    a, b = (lines[start : len(lines) - same] for lines in (ours, theirs))
    # At the end of two windows a line may lack its partner only because that is outside.
    cut = min(len(a), len(b)) > WINDOW
    a, b = a[:WINDOW], b[:WINDOW]
    for kind, first, last, begin, end in difflib.SequenceMatcher(a=a, b=b).get_opcodes():
        if kind != "equal":
            at_end = cut and (last, end) == (len(a), len(b))
            together = zip if at_end else itertools.zip_longest
            pairs = together(a[first:last], b[begin:end])
            yield from ((n, *pair) for n, pair in enumerate(pairs, start + first + 1))


def _cells(heads: str, one: str, other: str) -> str:
    """Of a row of a CSV file: which run it is (its first cells), and the columns that differ."""
    names, ours, theirs = (line.split(",") for line in (heads, one, other))
    if not heads or not len(names) == len(ours) == len(theirs):  # a cell with a comma, half a row
        return ""
    pairs = zip(names, ours, theirs, strict=True)
    columns = listed([name for name, a, b in pairs if a != b])
    return f" ({_printable(','.join(theirs[:4]))}), {columns}"


def _cut(text: str, first: int) -> str:
    """The part of a text around one character; nothing in it that a terminal would obey."""
    start = max(0, first - BEFORE) if len(text) > SHOWN else 0
    end = start + SHOWN
    part = ("…" if start else "") + text[start:end] + ("…" if text[end:] else "")
    return _printable(part)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
