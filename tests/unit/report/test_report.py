"""The files of a report: whole, safe, the same each time, and in agreement with the records."""

import csv
import functools
import io
import itertools
import math
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from rich.table import Table
from scipy import stats

from ringside.report.markdown import escaped
from ringside.report.sections.tables import results_table
from ringside.report.table import render_table
from ringside.report.write import write_pages, write_report
from ringside.stats.step_times import warm_up
from ringside_core.specs import Comparison, RefusalError
from tests.unit.report.bout import bout
from tests.unit.report.hostile import MARKUP, hostile
from tests.unit.report.page import Page
from tests.unit.report.small import small
from tests.unit.report.views import bout_view, printed
from tests.unit.stats.factory import (
    FAILED,
    arm_of,
    comparison_of,
    epoch,
    record,
    run_of,
    simple_run,
    spec_of,
)

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A written report of the made-up bout."""
    folder = tmp_path_factory.mktemp("bout")
    assert write_report(bout(), folder) == folder / "report.html"
    return folder


@pytest.fixture(scope="module")
def hostile_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of records whose every string holds markup."""
    folder = tmp_path_factory.mktemp("hostile")
    write_report(hostile(), folder)
    return folder


def test_csv_parses_back_to_hand_made_figures(folder: Path) -> None:
    """One row for each run, in order; throughput is computed here from the raw records."""
    rows = list(csv.DictReader(io.StringIO((folder / "results.csv").read_text())))
    runs = sorted(bout().runs, key=lambda run: run.position)

    assert len(rows) == len(runs) == 272
    for row, run in zip(rows, runs, strict=True):
        assert (row["arm"], int(row["round"]), row["outcome"]) == (
            run.arm,
            run.round,
            run.outcome.kind,
        )
        if not run.outcome.completed:
            assert row["throughput_examples_s"] == ""
            assert "ORTE has lost" in row["outcome_reason"]
            continue
        timed = [one.epochs[warm_up(run).epochs :] for one in run.records if one.epochs]
        seconds = sum(max(one.train_s for one in epochs) for epochs in zip(*timed, strict=True))
        assert float(row["throughput_examples_s"]) == pytest.approx(
            len(timed[0]) * 1437 / seconds, rel=1e-12
        )
        own = sum(one.peak_memory_bytes - (one.shared_memory_bytes or 0) for one in run.records)
        assert float(row["peak_pss_bytes"]) == own + 2**28  # what all of them share


def test_main_table_shows_mean_and_interval_of_the_csv(folder: Path) -> None:
    """Geometric mean and Student's t interval of the launches that count."""
    rows = list(csv.DictReader(io.StringIO((folder / "results.csv").read_text())))
    logs = [
        math.log(float(row["throughput_examples_s"]))
        for row in rows
        if row["arm"] == "horovod ×2" and row["round_counts"] == "yes"
    ]
    middle = statistics.fmean(logs)
    half = stats.t.ppf(0.975, 5) * statistics.stdev(logs) / math.sqrt(6)
    mean = f"{math.exp(middle):,.0f}"
    span = f"[{math.exp(middle - half):,.0f}, {math.exp(middle + half):,.0f}] n=6"

    page = Page((folder / "report.html").read_text()).text
    shown = terminal_text()

    assert mean in page and span in page
    assert f"| {mean} {escaped(span)} |" in (folder / "report.md").read_text()
    assert mean in shown and span in shown


def terminal_text(width: int = 120) -> str:
    """What a terminal of this width shows of the made-up bout."""
    return printed(bout_table(), width)


@functools.cache
def bout_table() -> Table:
    """The table of the made-up bout; what does not fit is folded, never cropped."""
    table = render_table(bout())
    assert all(column.overflow == "fold" and not column.no_wrap for column in table.columns)
    return table


def test_page_is_well_formed_and_self_contained(folder: Path) -> None:
    """Balanced tags, unique ids, links that work, nothing downloaded or executed."""
    page = Page((folder / "report.html").read_text())
    ids = [value for _, name, value in page.attributes if name == "id"]
    links = [value for tag, name, value in page.attributes if (tag, name) == ("a", "href")]
    used = [value for _, name, value in page.attributes if name in ("href", "xlink:href")]

    assert page.unbalanced == []
    assert len(ids) == len(set(ids))
    assert not {"script", "img", "iframe", "object", "embed", "base"} & set(page.tags)
    assert not [name for _, name, _ in page.attributes if name in ("src", "srcset", "onload")]
    for link in used:
        if link.startswith("#"):
            assert link[1:] in ids, link
    for link in links:
        assert link.startswith("#") or (folder / unquote(link)).exists(), link
    # no address but the names of two XML vocabularies, which no one visits
    addresses = set(re.findall(r"https?://[^\"' )]+", (folder / "report.html").read_text()))
    assert addresses <= {"http://www.w3.org/1999/xlink", "http://www.w3.org/2000/svg"}


def test_headings_are_in_order_and_plots_can_be_read_aloud(folder: Path) -> None:
    """One h1, no level skipped, and each picture says what it shows."""
    page = Page((folder / "report.html").read_text())
    levels = [int(tag[1]) for tag in page.tags if re.fullmatch("h[1-6]", tag)]
    labels = [value for tag, name, value in page.attributes if (tag, name) == ("svg", "aria-label")]

    assert levels[0] == 1 and levels.count(1) == 1
    assert all(below <= above + 1 for above, below in itertools.pairwise(levels))
    assert len(labels) == 1 + 5  # the headline, and the plots
    assert re.fullmatch(r"1\.\d\d×, faster", labels[0])
    assert "Highest: horovod:controller=mpi ×2" in labels[1]
    assert ("html", "lang", "en") in page.attributes


def test_markup_in_records_stays_text_in_html(hostile_folder: Path) -> None:
    """A script in a label, a workload, a host or an error is shown, never run."""
    source = (hostile_folder / "report.html").read_text()
    page = Page(source)

    assert "<script" not in source
    assert "script" not in page.tags
    assert page.unbalanced == []
    assert "\x1b" not in source
    for word in ("serial-label", "made-up-workload", "made-up-error", "made-up-command"):
        assert f"{word} {MARKUP}" in page.text


def test_markup_in_records_stays_text_in_markdown(hostile_folder: Path) -> None:
    """No cell is split and no link is made; text in a fence stays text."""
    text = (hostile_folder / "report.md").read_text()
    outside = re.sub(r"^(`{3,})text\n.*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)

    assert re.search(r"(?<!\\)<script", outside) is None
    assert re.search(r"(?<!\\)\[a(?<!\\)\]\(b\)", outside) is None
    tables = re.findall(r"(?:^\|.*\|\n)+", outside, flags=re.MULTILINE)
    assert len(tables) == 7
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1


def test_traceback_cannot_leave_its_fence(tmp_path: Path) -> None:
    """A fence is longer than any run of backticks within it."""
    outcome = FAILED.replace(traceback="a\n```\n# heading\n````\nb")
    run = run_of(arm_of("serial"), [], outcome=outcome)

    write_report(comparison_of([arm_of("serial")], [run]), tmp_path)

    text = (tmp_path / "report.md").read_text()
    assert "\n`````text\na\n```\n# heading\n````\nb\n`````\n" in text


@pytest.mark.parametrize("width", [80, 120])
def test_terminal_table_fits_and_loses_no_digit(width: int) -> None:
    """At every usual width all columns are there; below is what did not run, and why."""
    text = terminal_text(width)

    assert all(len(line) <= width for line in text.splitlines())
    assert "…" not in text
    first = results_table(bout_view().summary).rows[0]
    assert first[2].main in text and first[9].main in text  # examples/s and start-up
    assert "needs a TPU: neither TPU_NAME" in " ".join(text.split())
    assert "HorovodInternalError" in text
    said = " ".join(text.split())
    for line in (bout_view().headline.line, *(a for _, a, _ in bout_view().facts)):
        assert line in said


def test_markdown_fits_into_a_comment_on_github(folder: Path) -> None:
    """GitHub allows 65,536 characters; a row for each run is in page and CSV only."""
    text = (folder / "report.md").read_text()

    assert len(text) < 65_536
    assert "All 272 runs: see [report.html](report.html) and [results.csv](results.csv)." in text


def test_contradicting_records_are_refused_and_kept(tmp_path: Path) -> None:
    """No page is made of them, but the measurements are not lost."""
    spec = spec_of("horovod", 2)
    records = [record(spec, [epoch(1.0), epoch(1.0, examples=100 - rank)], rank) for rank in (0, 1)]
    comparison = comparison_of([arm_of("horovod", 2)], [run_of(arm_of("horovod", 2), records)])

    with pytest.raises(RefusalError, match="the same examples"):
        write_report(comparison, tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


@pytest.mark.parametrize(
    "comparison",
    [
        comparison_of([arm_of("serial")], []),
        comparison_of([arm_of("serial")], [simple_run("serial", 1, 1.0).replace(outcome=FAILED)]),
        comparison_of([arm_of("serial")], [run_of(arm_of("serial"), [], outcome=FAILED)]),
        comparison_of(
            [arm_of("serial")],
            [
                run_of(
                    arm_of("serial"), [record(spec_of("serial"), [epoch(1.0)], quality_target=None)]
                )
            ],
        ),
        comparison_of([arm_of("horovod", 2)], [simple_run("horovod", 2, 1.0)]),
    ],
    ids=["no run", "failed", "without records", "one epoch, no target", "one size"],
)
def test_poor_comparisons_are_reported_too(tmp_path: Path, comparison: Comparison) -> None:
    """The page says in words what is missing; nothing breaks."""
    page = Page(write_report(comparison, tmp_path).read_text())

    render_table(comparison)
    assert page.unbalanced == []
    assert not re.search(r"\b(nan|inf|None)\b", page.text)


def test_report_imports_neither_frameworks_nor_other_rooms() -> None:
    """Not even indirectly; and `--help` does not load the pages."""
    code = "import sys, ringside.report; print(*sys.modules)"
    write = "; from ringside.report import check, data, html, markdown, plots, view"

    light = _modules(code)
    heavy = _modules(code.replace("; print", write + "; print"))

    assert not {"matplotlib", "jinja2", "numpy"} & light
    forbidden = {"tensorflow", "keras", "tf_keras", "horovod"}
    rooms = {"ringside.comparison", "ringside_core.workloads", "launch", "trainers", "backends"}
    assert not (forbidden | rooms) & heavy


def _modules(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_breakdown_arms_twins_and_disturbed_rounds_have_rows(folder: Path) -> None:
    """Every run has a row that says what it is and whether its round counts."""
    rows = list(csv.DictReader(io.StringIO((folder / "results.csv").read_text())))
    arms = {arm.label: arm for arm in bout().arms}

    written = {(row["arm"], row["twin_of"], row["ablation"]) for row in rows}
    assert written == {(arm.label, arm.twin_of, arm.ablation) for arm in arms.values()}
    assert sum(bool(row["twin_of"]) for row in rows) == 8
    # A run of the second round failed; 9.2 of 2 · 20 s beside the sixth were others'.
    assert {row["round"] for row in rows if row["round_counts"] == "no"} == {"2", "6"}
    disturbed = {(row["round"], row["disturbed_by"]) for row in rows if row["disturbed_by"]}
    assert disturbed == {("6", "others used 23 % of its cores")}
    assert {row["comparable"] for row in rows if arms[row["arm"]].for_breakdown} == {"no"}
    assert None not in {value for row in rows for value in row.values()}


PAGES = {"report.html", "report.md", "results.csv", "samples.csv"}


@pytest.fixture
def before(tmp_path: Path) -> dict[str, bytes]:
    """A report that is there already, of something else."""
    for name in PAGES:
        (tmp_path / name).write_bytes(b"before")
    return contents(tmp_path)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    "where", ["ringside.report.html.render_html", "ringside.report.data.render_csv"]
)
def test_a_page_that_cannot_be_made_leaves_all_as_they_were(
    where: str, before: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything is rendered first; the measurements are kept."""

    def fails(*_: object) -> str:
        raise ZeroDivisionError

    monkeypatch.setattr(where, fails)
    monkeypatch.setattr("ringside.report.plots.plots_of", lambda view: [])

    with pytest.raises(ZeroDivisionError):
        write_report(small(), tmp_path)

    results = {"results.json": small().to_json().encode()}
    assert contents(tmp_path) == {**before, **results}


def test_a_full_disk_leaves_all_as_they_were(
    before: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest file is cut, and none of the other new files is seen."""

    def full(_: Comparison) -> Iterator[tuple[str, ...]]:
        yield ("run",)
        raise OSError("no space left on device")

    monkeypatch.setattr("ringside.report.data.sample_rows", full)

    with pytest.raises(OSError, match="no space left"):
        write_pages(small(), tmp_path, digest="d" * 64)

    assert contents(tmp_path) == before
