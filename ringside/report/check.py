"""Does a written report say what its raw samples say? Every file is made again and compared."""

import io
import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ringside.report.chain import against_gaps
from ringside.report.differences import Difference, line_differences
from ringside.report.second_opinion import against_summary, second_opinion
from ringside.report.source import RESULTS, naming, read_results, read_text, report_version
from ringside.report.witnesses import against_certificates, against_loads, against_records
from ringside.report.write import PAGES, files_of
from ringside.stats.step_times import warm_up
from ringside_core.specs import RefusalError

FILES = ("results.csv", "report.md", "report.html", "samples.csv", "mllog.txt")
WITNESSES = (against_gaps, against_records, against_loads, against_certificates)
TAG = re.compile(r"<[^>]*>")
VERSION = re.compile(r"Code of this report\W*([0-9a-f]{64})")
ENOUGH = 200  # differences of one file that are told; a file may have thousands


@dataclass(frozen=True)
class Checked:
    """The result of a check.

    Attributes:
        compared: what was compared, as (what, how many).
        differences: what does not agree; empty: the report says what the samples say.
        notes: what could not be compared.
    """

    compared: tuple[tuple[str, int], ...]
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]


def check_report(folder: Path) -> Checked:
    """Make the whole report again from the raw samples and compare it byte by byte.

    side_by_side.html and .md do not belong to the report: they are made from two comparisons.

    Raises:
        RefusalError: the folder holds no comparison, a file of it is missing or damaged, or other
            code wrote it: then the code may be the reason for a difference.
    """
    results = read_results(folder)
    comparison = results.comparison
    written = {name: read_text(folder / name) for name in FILES}
    _refuse_other_code(folder, written)
    witnesses = [ask(folder, comparison) for ask in WITNESSES]
    compared = [(one.what, one.count) for one in witnesses]
    found = [difference for one in witnesses for difference in one.differences]
    found += [
        Difference(name, "Digest of the raw samples", "another one", results.digest)
        for name in PAGES
        if results.digest not in written[name]
    ]
    with naming(folder / RESULTS):
        summary, files = files_of(comparison, folder, digest=results.digest)
        for name in FILES:
            stream = io.BytesIO()
            files[name](stream)
            expected = stream.getvalue().decode()
            compared.append((f"lines of {name}", expected.count("\n")))
            found += itertools.islice(line_differences(name, written[name], expected), ENOUGH)
        opinion = second_opinion(
            folder,
            warm_up_epochs={run.position: warm_up(run).epochs for run in comparison.runs},
            rounds=summary.rounds.used,
        )
    count, different = against_summary(opinion, summary)
    compared.append(("numbers computed a second way", count))
    notes = tuple(one.note for one in witnesses if one.note)
    return Checked(tuple(compared), tuple([*found, *different]), notes)


def _refuse_other_code(folder: Path, written: Mapping[str, str]) -> None:
    """Other code may rightly compute other numbers."""
    for name in PAGES:
        shown = VERSION.search(TAG.sub("", written[name]))
        version = shown[1] if shown else ""
        if version != report_version():
            raise RefusalError(
                "A report is verified by the code that wrote it.",
                received=f"{folder / name}, written by other code "
                f"({version or 'it does not say which'}; this is {report_version()})",
                advice=f"Run `ringside report {folder}` first: it leaves {RESULTS} as it is.",
            )
