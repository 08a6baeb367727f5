"""Is a written report what its raw samples say? Every file of it, made again and compared."""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ringside.report.mllog import render_mllog
from ringside.report.printed import (
    ENOUGH,
    Difference,
    Page,
    csv_differences,
    differing,
    html_page,
    log_page,
    markdown_page,
)
from ringside.report.rows import COLUMNS as RUN_COLUMNS
from ringside.report.rows import csv_rows
from ringside.report.samples import COLUMNS as SAMPLE_COLUMNS
from ringside.report.samples import sample_rows
from ringside.report.second_opinion import against_csv, against_markdown, second_opinion
from ringside.report.source import RESULTS, Results, naming, read_results, read_text, report_version
from ringside.report.witnesses import against_certificates, against_records
from ringside_core.specs import RefusalError

READERS: Mapping[str, Callable[[str], Page]] = {
    "report.html": html_page,
    "report.md": markdown_page,
    "mllog.txt": log_page,
}
TABLES = ("results.csv", "samples.csv")
PAGES = ("report.html", "report.md")
DIGEST = re.compile(r"Digest of the raw samples\W+([0-9a-f]{64})")
VERSION = re.compile(r"Code of this report\W+([0-9a-f]{64})")


@dataclass(frozen=True)
class Checked:
    """What came of a check.

    Attributes:
        compared: what was looked at, as (what, how many).
        differences: what does not agree; empty: the report is what the samples say.
        notes: what could not be looked at.
    """

    compared: tuple[tuple[str, int], ...]
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]


def check_report(folder: Path) -> Checked:
    """Make the whole report again from the raw samples and compare.

    side_by_side.html and .md are no part of it: they are made of two comparisons.

    Raises:
        RefusalError: the folder holds no comparison, a file of it is missing or damaged, or other
            code wrote it: what differs then may be the code.
    """
    results = read_results(folder)
    written = {name: _Written(read_text(folder / name), read) for name, read in READERS.items()}
    tables = {name: read_text(folder / name) for name in TABLES}
    _refuse_other_code(folder, written)
    witnesses = [ask(folder, results.comparison) for ask in (against_records, against_certificates)]
    compared = [(one.what, one.count) for one in witnesses]
    found = [difference for one in witnesses for difference in one.differences]
    found += _digests(results.digest, written)
    with naming(folder / RESULTS):
        for name, count, own in _files(folder, results, written, tables):
            compared.append((f"texts and numbers of {name}", count))
            found += own
    numbers, own = _second(folder, written["report.md"].page)
    compared.append(("numbers computed a second way", numbers))
    notes = tuple(one.note for one in witnesses if one.note)
    return Checked(tuple(compared), tuple([*found, *own]), notes)


class _Written:
    """A file of the report as it lies there, taken apart once."""

    def __init__(self, text: str, read: Callable[[str], Page]) -> None:
        self.text = text
        self.page = read(text)

    def shown(self, digest: re.Pattern[str]) -> str:
        """A digest that it shows; empty: it does not."""
        found = digest.search(" ".join(self.page.texts.values()))
        return found[1] if found else ""


def _refuse_other_code(folder: Path, written: Mapping[str, _Written]) -> None:
    """Every number may rightly be another one where the code that computes it is."""
    for name in PAGES:
        version = written[name].shown(VERSION)
        if version != report_version():
            raise RefusalError(
                "A report is verified by the code that wrote it.",
                received=f"{folder / name}, written by other code "
                f"({version or 'it does not say which'}; this is {report_version()})",
                advice=f"Run `ringside report {folder}` first: it leaves {RESULTS} as it is.",
            )


def _digests(expected: str, written: Mapping[str, _Written]) -> Iterator[Difference]:
    """The digest that each page shows is that of results.json."""
    for name in PAGES:
        shown = written[name].shown(DIGEST)
        if shown != expected:
            yield Difference(name, "Digest of the raw samples", shown or "nothing", expected)


def _files(
    folder: Path, results: Results, written: Mapping[str, _Written], texts: Mapping[str, str]
) -> Iterator[tuple[str, int, list[Difference]]]:
    """Every file made again: (name, texts compared, differences)."""
    from ringside.report.html import render_html
    from ringside.report.markdown import render_markdown
    from ringside.report.plots import plots_of
    from ringside.report.view import view_of

    comparison = results.comparison
    view = view_of(comparison, folder, digest=results.digest)
    made = {
        "report.html": render_html(view, plots_of(view)),
        "report.md": render_markdown(view),
        "mllog.txt": render_mllog(comparison),
    }
    for name, expected in made.items():
        there = written[name]
        found: list[Difference] = []
        if there.text != expected:
            found = _first(differing(name, there.page.texts, READERS[name](expected).texts))
            found = found or [Difference(name, *_first_line(there.text, expected))]
        yield name, len(there.page.texts), found
    tables = (
        ("results.csv", (RUN_COLUMNS, *csv_rows(view.summary)), ("position", "arm")),
        (
            "samples.csv",
            itertools.chain((SAMPLE_COLUMNS,), sample_rows(comparison)),
            ("kind", "position", "arm", "task", "epoch", "execution"),
        ),
    )
    for name, rows, keys in tables:
        lines = texts[name].splitlines(keepends=True)
        yield name, len(lines), _first(csv_differences(name, lines, rows, keys))


def _first(found: Iterator[Difference]) -> list[Difference]:
    return list(itertools.islice(found, ENOUGH))


def _first_line(found: str, expected: str) -> tuple[str, str, str]:
    """The first line that differs, where no text or number does: markup."""
    lines = itertools.zip_longest(found.split("\n"), expected.split("\n"), fillvalue="")
    for number, (one, other) in enumerate(lines, 1):
        if one != other:
            return f"line {number}, markup", one, other
    raise AssertionError("texts that differ have a line that differs")


def _second(folder: Path, markdown: Page) -> tuple[int, list[Difference]]:
    """The main numbers, computed another way by other code, against what is printed."""
    try:
        opinion = second_opinion(folder)
        csv_count, csv_found = against_csv(opinion, folder / "results.csv")
        count, found = against_markdown(opinion, markdown)
    except (ValueError, KeyError, TypeError) as error:  # of pandas, on a table with other columns
        told = f"{type(error).__name__}: {error}"
        place = "what the second computation reads"
        return 0, [Difference("results.csv, samples.csv", place, told, "the tables of a report")]
    return csv_count + count, [*csv_found, *found]
