"""Is a written report what its raw samples say? Every file of it, made again and compared."""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from report.mllog import render_mllog
from report.printed import (
    ENOUGH,
    Difference,
    Page,
    csv_differences,
    differing,
    html_page,
    log_page,
    markdown_page,
)
from report.recompute import samples_digest
from report.rows import COLUMNS as RUN_COLUMNS
from report.rows import csv_rows
from report.samples import COLUMNS as SAMPLE_COLUMNS
from report.samples import sample_rows
from report.second_opinion import against_csv, against_markdown, second_opinion
from report.source import RESULTS, naming, read_comparison, read_text
from specs import Comparison, RefusalError, RunRecord
from specs.noun import differences

READERS: Mapping[str, Callable[[str], Page]] = {
    "report.html": html_page,
    "report.md": markdown_page,
    "mllog.txt": log_page,
}
DIGEST = re.compile(r"Digest of the raw samples\W+([0-9a-f]{64})")


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

    Raises:
        RefusalError: the folder holds no comparison, or a file of it is missing or damaged.
    """
    comparison = read_comparison(folder)
    records, differing_records, notes = against_records(folder, comparison)
    written = {name: _Written(read_text(folder / name), read) for name, read in READERS.items()}
    compared = [("processes' own records", records)]
    found = [*differing_records, *_digests(comparison, written)]
    with naming(folder / RESULTS):
        for name, count, own in _files(folder, comparison, written):
            compared.append((f"texts and numbers of {name}", count))
            found += own
    numbers, own = _second(folder, written["report.md"].page)
    compared.append(("numbers computed a second way", numbers))
    return Checked(tuple(compared), tuple([*found, *own]), tuple(notes))


class _Written:
    """A file of the report as it lies there, taken apart once."""

    def __init__(self, text: str, read: Callable[[str], Page]) -> None:
        self.text = text
        self.page = read(text)


def against_records(
    folder: Path, comparison: Comparison
) -> tuple[int, list[Difference], list[str]]:
    """What each process wrote itself, where it still lies there."""
    count, gone = 0, 0
    found: list[Difference] = []
    runs = [(f"runs.{index}", run) for index, run in enumerate(comparison.runs)]
    runs += [(f"trials.{index}.run", trial.run) for index, trial in enumerate(comparison.trials)]
    for place, run in runs:
        records = PurePosixPath(run.log_dir).parent / "records"
        if ".." in records.parts or not (folder / records).is_dir():
            gone += 1
            continue
        files = {file.stem: file for file in sorted((folder / records).glob("*.json"))}
        for index, record in enumerate(run.records):
            count += 1
            file = files.pop(record.task, None)
            where = f"{place}.records.{index}"
            found += _against_record(folder, file, records, record, where)
        found += [
            Difference(
                str(file.relative_to(folder)), "the whole file", "a record", f"none in {place}"
            )
            for file in files.values()
            if run.outcome.completed
        ]
    notes = []
    if gone:
        notes.append(
            f"The records of {gone} of {len(runs)} runs lie no longer below {folder}: "
            f"for these {RESULTS} is the only witness."
        )
    return count, found, notes


def _against_record(
    folder: Path, file: Path | None, records: PurePosixPath, record: RunRecord, where: str
) -> Iterator[Difference]:
    name = str(records / f"{record.task}.json")
    if file is None:
        yield Difference(name, "the whole file", "nothing", f"{where} of {RESULTS}")
        return
    try:
        own = RunRecord.from_json(read_text(file), origin=str(file.relative_to(folder)))
    except RefusalError as error:
        yield Difference(name, "the whole file", str(error), f"{where} of {RESULTS}")
        return
    told = (one.model_dump(mode="json") for one in (own, record))
    for path, theirs, ours in differences(next(told), next(told)):
        yield Difference(name, path, str(theirs), f"{ours} ({RESULTS}: {where}.{path})")


def _digests(comparison: Comparison, written: dict[str, _Written]) -> Iterator[Difference]:
    """The digest that each page shows is that of results.json."""
    expected = samples_digest(comparison)
    for name in ("report.html", "report.md"):
        shown = DIGEST.search(" ".join(written[name].page.texts.values()))
        if shown is None or shown[1] != expected:
            told = shown[1] if shown else "nothing"
            yield Difference(name, "Digest of the raw samples", told, expected)


def _files(
    folder: Path, comparison: Comparison, written: dict[str, _Written]
) -> Iterator[tuple[str, int, list[Difference]]]:
    """Every file made again: (name, texts compared, differences)."""
    from report.html import render_html
    from report.markdown import render_markdown
    from report.plots import plots_of
    from report.view import view_of

    view = view_of(comparison, folder)
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
        lines = read_text(folder / name).splitlines(keepends=True)
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
