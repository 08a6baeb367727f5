"""Tables of text, before any format."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """One cell: what is read first, and a smaller line below it."""

    main: str
    note: str = ""
    bad: bool = False
    link: str = ""


@dataclass(frozen=True)
class Column:
    """Head of a column, and what it is measured in or against."""

    name: str
    note: str = ""
    numeric: bool = True


@dataclass(frozen=True)
class Table:
    """A table whose first column names its rows.

    Attributes:
        apart: rows at the end that are not comparable with those above, and are set apart.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    apart: int = 0
