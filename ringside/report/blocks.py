"""Tables of text and the sections that hold them, before any format.

HTML, Markdown and terminal show the same cells, so they cannot tell different stories.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Tone = Literal["", "won", "tie", "empty"]


@dataclass(frozen=True)
class Cell:
    """One cell: what is read first, and a smaller line below it.

    Attributes:
        word: a verdict, set off from the number that it is about.
        tone: how the cell looks; never the only thing that tells it apart.
    """

    main: str
    note: str = ""
    bad: bool = False
    link: str = ""
    word: str = ""
    tone: Tone = ""


@dataclass(frozen=True)
class Column:
    """Head of a column, and what it is measured in or against."""

    name: str
    note: str = ""
    numeric: bool = True


@dataclass(frozen=True)
class Table:
    """A table one of whose columns names its rows.

    Attributes:
        apart: rows at the end that are not comparable with those above, and are set apart.
        label: what it holds, for whoever cannot see it.
        kind: names its look.
        head: the column that names the rows.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    apart: int = 0
    label: str = ""
    kind: str = ""
    head: int = 0


@dataclass(frozen=True)
class Heading:
    """A heading within a section."""

    text: str


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Bullets:
    """Sentences one below the other; of each the second part says what to do about it.

    Attributes:
        links: sections of the page that such a second part leads to.
    """

    items: tuple[tuple[str, str], ...]
    label: str = ""
    links: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Terms:
    """Names, and what is said of each; facts are short and stand beside each other."""

    items: tuple[tuple[str, str], ...]
    label: str = ""
    facts: bool = False


@dataclass(frozen=True)
class Picture:
    """Where the plot of this name stands; Markdown names the page that has it."""

    name: str


@dataclass(frozen=True)
class Output:
    """What processes printed: (process, lines)."""

    lines: tuple[tuple[str, str], ...]
    link: str = ""


@dataclass(frozen=True)
class Folded:
    """What is shown on demand.

    Attributes:
        files: beside the page, that hold it; Markdown names them instead, as GitHub shows no more
            than 65,536 characters of a text.
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
        sure: whether the answer may be relied on without reading on.
    """

    name: str
    title: str
    nav: str
    answer: str
    blocks: tuple[Block, ...]
    sure: bool = True
