"""Tables of text and the sections that hold them, before any format.

HTML, Markdown and terminal show the same cells, so they cannot tell different stories.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

Tone = Literal["", "won", "tie", "empty"]


@dataclass(frozen=True)
class Cell:
    """One cell: the main text, and a smaller line below it."""

    main: str
    note: str = ""
    bad: bool = False
    link: str = ""
    word: str = ""  # a verdict, set apart from its number
    tone: Tone = ""  # how the cell looks; the words must be clear without it


@dataclass(frozen=True)
class Column:
    """Head of a column, with its unit or base as a note."""

    name: str
    note: str = ""
    numeric: bool = True


def heads(line: str) -> tuple[Column, ...]:
    """Columns as `<Arm | Step (ms)`: a note is in parentheses, and `<` stands before text."""
    found = []
    for head in line.split(" | "):
        name, _, note = head.removeprefix("<").partition(" (")
        found.append(Column(name, note.removesuffix(")"), numeric=not head.startswith("<")))
    return tuple(found)


@dataclass(frozen=True)
class Table:
    """A table one of whose columns names its rows."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    apart: int = 0  # rows at the end that are not comparable with those above
    label: str = ""  # what it contains, for readers who cannot see it
    kind: str = ""  # its CSS class
    head: int = 0  # the column that names the rows


@dataclass(frozen=True)
class Heading:
    """A heading within a section."""

    text: str


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


class Caveat(NamedTuple):
    """A reason to be careful, computed from the records, and what to do about it."""

    what: str
    advice: str = ""
    section: str = ""  # of the page, to which the advice leads


@dataclass(frozen=True)
class Bullets:
    """Sentences in a list, each with its advice."""

    items: tuple[Caveat, ...]
    label: str = ""


@dataclass(frozen=True)
class Terms:
    """Names with their explanations; facts are short and are set side by side."""

    items: tuple[tuple[str, str], ...]
    label: str = ""
    facts: bool = False


@dataclass(frozen=True)
class Picture:
    """The place of the plot of this name; Markdown has no plots."""

    name: str


@dataclass(frozen=True)
class Output:
    """What processes printed: (process, lines)."""

    lines: tuple[tuple[str, str], ...]
    link: str = ""


@dataclass(frozen=True)
class Folded:
    """Blocks that are shown on demand.

    Attributes:
        files: files beside the page that contain the same. Markdown names them instead, because
            GitHub shows at most 65,536 characters of a text.
    """

    summary: str
    blocks: "tuple[Block, ...]"
    files: tuple[str, ...] = ()


Block = Table | Heading | Text | Bullets | Terms | Picture | Output | Folded


@dataclass(frozen=True)
class Section:
    """One part of a report: a question, the answer in one line, then what it rests on.

    Attributes:
        name: of its anchor.
        nav: its short name in the table of contents.
        sure: whether a reader may rely on the answer alone.
    """

    name: str
    title: str
    nav: str
    answer: str
    blocks: tuple[Block, ...]
    sure: bool = True
