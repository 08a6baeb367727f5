"""Where two texts or two values differ, so that a reader sees it at once."""

import difflib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

SHOWN = 120  # characters of a long text that are shown
BEFORE = 40  # of these before the first character that differs


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
    """Each line in which two texts differ; of a line that one of them lacks, `nothing`."""
    if found == expected:
        return
    ours, theirs = found.split("\n"), expected.split("\n")
    for kind, first, last, begin, end in difflib.SequenceMatcher(a=ours, b=theirs).get_opcodes():
        if kind != "equal":
            pairs = itertools.zip_longest(ours[first:last], theirs[begin:end], fillvalue="nothing")
            for number, (one, other) in enumerate(pairs, first + 1):
                yield Difference(file, f"line {number}", one, other)


def _cut(text: str, first: int) -> str:
    """The part of a text around one character; nothing in it that a terminal would obey."""
    start = max(0, first - BEFORE) if len(text) > SHOWN else 0
    end = start + SHOWN
    part = ("…" if start else "") + text[start:end] + ("…" if text[end:] else "")
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in part)
