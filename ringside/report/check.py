"""Are the pages of a comparison what its samples say? They are rendered again and compared."""

import io
import itertools
from pathlib import Path

from ringside.report.source import RESULTS, naming, read_results, read_text, report_version
from ringside.report.write import PAGES, Writer, files_of
from ringside_core.specs import RefusalError

SHOWN, BEFORE = 120, 40  # characters of a line that are shown, and those before the difference


def check_report(folder: Path) -> dict[str, str]:
    """Render all pages again from results.json and compare them byte by byte.

    side_by_side.html and .md do not belong to the report: they are made from two comparisons.

    Returns:
        For each file of the report the first line that differs; empty: none does.

    Raises:
        RefusalError: the folder holds no comparison, a file of it is missing or damaged, or other
            code wrote it: then the code may be the reason for a difference.
    """
    results = read_results(folder)
    for name in PAGES:
        if report_version() not in read_text(folder / name):
            raise RefusalError(
                "A report is verified by the code that wrote it.",
                received=f"{folder / name}, written by other code (this is {report_version()})",
                advice=f"Run `ringside report {folder}` first: it leaves {RESULTS} as it is.",
            )
    with naming(folder / RESULTS):
        files = files_of(results.comparison, folder, digest=results.digest)
    return {name: _first_difference(folder / name, write) for name, write in files.items()}


def _first_difference(file: Path, write: Writer) -> str:
    stream = io.BytesIO()
    write(stream)
    found, expected = read_text(file), stream.getvalue().decode()
    if found == expected:
        return ""
    lines = itertools.zip_longest(found.split("\n"), expected.split("\n"))
    number, (ours, theirs) = next(
        (n, pair) for n, pair in enumerate(lines, 1) if pair[0] != pair[1]
    )
    pairs = enumerate(itertools.zip_longest(ours or "", theirs or ""))
    start = max(0, next((i for i, (a, b) in pairs if a != b), 0) - BEFORE)
    return f"line {number}: {_shown(ours, start)} → {_shown(theirs, start)}"


def _shown(line: str | None, start: int) -> str:
    """The part of a line from a character on; nothing in it that a terminal would obey."""
    if line is None:
        return "no line"
    end = start + SHOWN
    part = ("…" if start else "") + line[start:end] + ("…" if line[end:] else "")
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in part)
