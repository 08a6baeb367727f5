"""What a written report says, by place: so that two reports can be compared word by word."""

import csv
import html.parser
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

SHOWN = 120  # characters of a long text that are shown
ENOUGH = 200  # differences of one file that are told; a file in which all differs has thousands


@dataclass(frozen=True)
class Difference:
    """One thing that does not agree: what stands there, and what should."""

    file: str
    place: str
    found: str
    expected: str

    def __str__(self) -> str:
        found, expected = _around_the_difference(self.found, self.expected)
        return f"{self.file}: {self.place}: {found} → {expected}"


@dataclass
class Page:
    """Texts of a page by place.

    Attributes:
        texts: by `section / row / column`, or `section / text 3`; drawings by their spoken label.
        tables: (section, columns, rows) of every table.
    """

    texts: dict[str, str] = field(default_factory=dict)
    tables: list[tuple[str, list[str], list[list[str]]]] = field(default_factory=list)
    section: str = "top"
    _times: Counter[str] = field(default_factory=Counter)

    def say(self, text: str) -> None:
        """One more sentence of the section."""
        if text:
            self._put(f"{self.section} / text", text)

    def table(self, columns: list[str], rows: list[list[str]]) -> None:
        """One more table of the section; the first cell of a row names it."""
        self.tables.append((self.section, columns, rows))
        self._put(f"{self.section} / columns", " | ".join(columns))
        for row in rows:
            name = row[0] if row else ""
            for column, cell in itertools.zip_longest(columns, row, fillvalue=""):
                self._put(f"{self.section} / {name} / {column}", cell)

    def draw(self, label: str, strokes: str) -> None:
        """One drawing."""
        self._put(f"drawing {label!r}", strokes)

    def _put(self, place: str, text: str) -> None:
        """The same place twice is counted: a section has many texts, a table equal rows."""
        self._times[place] += 1
        times = self._times[place]
        self.texts[place if times == 1 else f"{place} {times}"] = text


def differing(file: str, found: dict[str, str], expected: dict[str, str]) -> Iterator[Difference]:
    """Every place whose texts are not the same."""
    for place in {**expected, **found}:
        one, other = found.get(place), expected.get(place)
        if one != other:
            yield Difference(file, place, _told(one), _told(other))


def markdown_page(text: str) -> Page:
    """A report.md by place."""
    page = Page()
    for is_table, group in itertools.groupby(text.splitlines(), lambda line: line[:1] == "|"):
        if is_table:
            head, _rule, *rows = [_cells(line) for line in group]
            page.table(head, rows)
            continue
        for line in group:
            if line.startswith("#"):
                page.section = _unescaped(line.lstrip("#").strip())
            page.say(_unescaped(line.strip()))
    return page


def _cells(line: str) -> list[str]:
    return [_unescaped(cell.strip()) for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text).replace("&amp;", "&")


def html_page(text: str) -> Page:
    """A report.html by place."""
    reader = _HtmlReader()
    reader.feed(text)
    reader.close()
    reader.end_text()
    return reader.page


class _HtmlReader(html.parser.HTMLParser):
    """Headings, sentences, tables and drawings of a page."""

    INLINE = frozenset({"wbr", "b", "strong", "em", "i", "a", "span", "code", "abbr", "small"})
    SKIPPED = frozenset({"style", "title"})

    def __init__(self) -> None:
        super().__init__()
        self.page = Page()
        self._text: list[str] = []
        self._rows: list[list[str]] | None = None
        self._drawing: str | None = None
        self._strokes: list[str] = []
        self._skip = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Ends what was said before; opens a table, a row, a drawing."""
        given = {name: value or "" for name, value in attrs}
        if tag == "svg" and self._drawing is None:
            self.end_text()
            self._drawing = given.get("aria-label", "")
        if self._drawing is not None:
            self._strokes.append(" ".join(f"{name}={value}" for name, value in given.items()))
            return
        self._skip = tag in self.SKIPPED
        if tag == "table":
            self._rows = []
        elif tag == "tr" and self._rows is not None:
            self._rows.append([])
        elif tag not in self.INLINE and not self._in_cell():
            self.end_text()
        elif tag not in self.INLINE or tag == "small":
            self._text.append(" ")

    def handle_endtag(self, tag: str) -> None:
        """Ends a heading, a cell, a table, a drawing."""
        self._skip = False
        if tag == "svg" and self._drawing is not None:
            self.page.draw(self._drawing, "\n".join(self._strokes))
            self._drawing, self._strokes = None, []
        elif self._drawing is not None:
            return
        elif tag in ("td", "th") and self._rows is not None and self._rows:
            self._rows[-1].append(self._said())
        elif tag == "table" and self._rows is not None:
            head, *rows = self._rows or [[]]
            self._rows = None
            self.page.table(head, rows)
        elif re.fullmatch("h[1-6]", tag):
            self.page.section = self._said()
            self.page.say(self.page.section)
        elif tag not in self.INLINE and not self._in_cell():
            self.end_text()

    def handle_data(self, data: str) -> None:
        """Text, of a drawing too."""
        if self._drawing is not None:
            self._strokes.append(data.strip())
        elif not self._skip:
            self._text.append(data)

    def end_text(self) -> None:
        """What was collected becomes one text of its section."""
        self.page.say(self._said())

    def _in_cell(self) -> bool:
        return self._rows is not None and bool(self._rows)

    def _said(self) -> str:
        text = " ".join("".join(self._text).split())
        self._text = []
        return text


def csv_differences(
    file: str, found: Iterable[str], expected: Iterable[Sequence[object]], keys: Sequence[str]
) -> Iterator[Difference]:
    """Compare a CSV file with the rows that it should hold, the first of which is the head.

    Args:
        file: its name.
        found: its lines.
        expected: rows; compared as the text that `csv` would write.
        keys: columns that name a row.
    """
    head: list[str] = []
    for number, (one, other) in enumerate(itertools.zip_longest(csv.reader(found), expected), 1):
        told = None if other is None else [_csv_text(value) for value in other]
        if one == told:
            head = head or list(one or [])
            continue
        if one is None or told is None or number == 1:
            yield Difference(file, f"line {number}", _told(one), _told(told))
            head = told or []
            continue
        row = dict(zip(head, told, strict=False))
        name = ", ".join(f"{key} {row[key]}" for key in keys)
        for column, left, right in itertools.zip_longest(head, one, told, fillvalue=""):
            if left != right:
                yield Difference(file, f"{name} / {column}", left, right)


def _csv_text(value: object) -> str:
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)


def log_page(text: str) -> Page:
    """An mllog.txt by run, key and field."""
    page = Page()
    for number, line in enumerate(text.splitlines(), 1):
        try:
            event = json.loads(line.removeprefix(":::MLLOG "))
            name = f"{event['namespace']} / {event['key']} {event['metadata'].get('epoch_num', '')}"
            fields = {**event, **event["metadata"]}
        except (ValueError, KeyError, TypeError, AttributeError):
            name, fields = f"line {number}", {"text": line}
        page.section = name.strip()
        for key, value in fields.items():
            page.texts[f"{page.section} / {key}"] = str(value)
    return page


def _told(value: object) -> str:
    if value is None:
        return "nothing"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _around_the_difference(one: str, other: str) -> tuple[str, str]:
    """Two texts, cut to where they begin to differ."""
    if max(len(one), len(other)) <= SHOWN:
        return one, other
    pairs = enumerate(zip(one, other, strict=False))
    first = next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))
    start = max(0, first - SHOWN // 3)
    return _cut(one, start), _cut(other, start)


def _cut(text: str, start: int) -> str:
    end = start + SHOWN
    return ("…" if start else "") + text[start:end] + ("…" if text[end:] else "")
