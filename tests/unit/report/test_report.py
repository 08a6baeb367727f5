"""The files of a report: whole, safe, the same each time, and in agreement with the records."""

import csv
import functools
import io
import itertools
import json
import math
import re
import statistics
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
from rich.console import Console
from rich.table import Table
from scipy import stats

from ringside.report import write_report
from ringside.report.html import breaks, render_html
from ringside.report.markdown import escaped, render_markdown
from ringside.report.sections.tables import results_table
from ringside.report.table import render_table
from ringside.stats.step_times import warm_up
from ringside_core.specs import Comparison, Outcome, RefusalError
from tests.unit.report.bout import DISTURBED, bout
from tests.unit.report.hostile import MARKUP, hostile
from tests.unit.report.page import Page
from tests.unit.report.views import bout_plots, bout_view
from tests.unit.stats.factory import (
    arm_of,
    comparison_of,
    epoch,
    record,
    run_of,
    simple_run,
    spec_of,
)

ROOT = Path(__file__).resolve().parents[3]
FAILED = Outcome(kind="failed", error_class="OSError", reason="no route to host")
FILES = {"report.html", "report.md", "results.json", "results.csv", "samples.csv"}


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


def test_writes_its_files_and_nothing_else(folder: Path) -> None:
    """No temporary file stays behind."""
    assert {path.name for path in folder.iterdir()} == FILES


def test_every_file_is_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the disk fails while a file is replaced, the one before is still there, whole."""
    replace = Path.replace
    full = ""

    def failing(self: Path, target: Path) -> Path:
        if Path(target).name == full:
            raise OSError("no space left on device")
        return replace(self, target)

    write_report(hostile(), tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in FILES}
    monkeypatch.setattr(Path, "replace", failing)
    # in the order in which they are written, so that each is still the one before
    for name in (
        "results.json",
        "samples.csv",
        "results.csv",
        "report.md",
        "report.html",
    ):
        full = name
        with pytest.raises(OSError, match="no space left"):
            write_report(comparison_of([arm_of("serial")], []), tmp_path)

        assert (tmp_path / name).read_bytes() == before[name]
        assert {path.name for path in tmp_path.iterdir()} == FILES


def test_same_records_give_the_same_pages(folder: Path) -> None:
    """A report contains nothing of the clock, the process or the folder."""
    view = bout_view()

    assert render_markdown(view) == (folder / "report.md").read_text()
    assert render_html(view, [*bout_plots().values()]) == (folder / "report.html").read_text()


def test_same_records_give_the_same_data(tmp_path: Path) -> None:
    """Neither do the files beside it."""
    for name in ("one", "two"):
        write_report(hostile(), tmp_path / name)

    for name in FILES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_json_holds_every_record(folder: Path) -> None:
    """results.json is the comparison itself."""
    body = json.loads((folder / "results.json").read_text())

    assert body.pop("schema_version") == Comparison.SCHEMA_VERSION
    assert body == bout().model_dump(mode="json")


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
    """Geometric mean and Student's t interval of the rounds that were not disturbed."""
    rows = list(csv.DictReader(io.StringIO((folder / "results.csv").read_text())))
    logs = [
        math.log(float(row["throughput_examples_s"]))
        for row in rows
        if row["arm"] == "horovod ×2" and int(row["round"]) != DISTURBED
    ]
    middle = statistics.fmean(logs)
    half = stats.t.ppf(0.975, 6) * statistics.stdev(logs) / math.sqrt(7)
    mean = f"{math.exp(middle):,.0f}"
    span = f"[{math.exp(middle - half):,.0f}, {math.exp(middle + half):,.0f}] n=7"

    page = Page((folder / "report.html").read_text()).text
    printed = terminal_text()

    assert mean in page and span in page
    assert f"| {mean} {escaped(span)} |" in (folder / "report.md").read_text()
    assert mean in printed and span in printed


def terminal_text(width: int = 120) -> str:
    """What a terminal of this width shows of the made-up bout."""
    terminal = Console(width=width, record=True, file=io.StringIO())
    terminal.print(bout_table())
    return terminal.export_text()


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
    # no address but the names of two XML vocabularies, which nobody visits
    addresses = set(re.findall(r"https?://[^\"' )]+", (folder / "report.html").read_text()))
    assert addresses <= {"http://www.w3.org/1999/xlink", "http://www.w3.org/2000/svg"}


def test_headings_are_in_order_and_plots_can_be_read_aloud(folder: Path) -> None:
    """One h1, no level skipped, and each picture says what it shows."""
    page = Page((folder / "report.html").read_text())
    levels = [int(tag[1]) for tag in page.tags if re.fullmatch("h[1-6]", tag)]
    labels = [value for tag, name, value in page.attributes if (tag, name) == ("svg", "aria-label")]

    assert levels[0] == 1 and levels.count(1) == 1
    assert all(below <= above + 1 for above, below in itertools.pairwise(levels))
    assert len(labels) == 2 + 5  # verdicts of two sizes, and the plots
    assert re.fullmatch(r"1\.\d\d×, faster", labels[0])
    assert "Highest: horovod:controller=mpi ×2" in labels[2]
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


def test_markup_in_records_stays_text_on_a_terminal() -> None:
    """Rich reads [red] as a colour; in a label it is text."""
    arm = arm_of("horovod").replace(label="[red]h[/red]", group="[red]h[/red]")
    run = simple_run("horovod", 1, 1.0).replace(arm=arm.label)
    terminal = Console(width=120, record=True, file=io.StringIO())

    terminal.print(render_table(comparison_of([arm], [run])))

    assert "[red]h[/red]" in terminal.export_text()


@pytest.mark.parametrize("width", [80, 100, 120])
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
    for line in (
        *(one.line for one in bout_view().headlines),
        *(a for _, a, _ in bout_view().facts),
    ):
        assert line in said


def test_terminal_table_is_at_most_100_columns_wide() -> None:
    """On a wide terminal too, with the longest notes: no interval, a missed target."""
    longest = arm_of("horovod", controller="mpi")
    plain = {"label": longest.label, "group": longest.group}
    arms = [arm_of("horovod").replace(**plain), arm_of("serial")]
    runs = [
        simple_run(
            arm.backend, 1, 0.01 * seconds, number=number, position=2 * number + place
        ).replace(arm=arm.label)
        for number, seconds in enumerate((1.0, 1.5))
        for place, arm in enumerate(arms)
    ]
    terminal = Console(width=200, record=True, file=io.StringIO())

    terminal.print(render_table(comparison_of(arms, runs)))

    text = terminal.export_text()
    assert "no interval" in text and "not reached" in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 100


def test_markdown_links_lead_somewhere(folder: Path) -> None:
    """Every link of report.md is a file beside it."""
    text = (folder / "report.md").read_text()
    links = re.findall(r"(?<!\\)\]\(([^)]+)\)", text)

    assert set(links) == FILES - {"report.md"}
    assert all((folder / link).exists() for link in links)


def test_markdown_fits_into_a_comment_on_github(folder: Path) -> None:
    """GitHub allows 65,536 characters; a row for each run is in page and CSV only."""
    text = (folder / "report.md").read_text()

    assert len(text) < 65_536
    assert "All 272 runs: see [report.html](report.html) and [results.csv](results.csv)." in text


def test_advice_leads_to_its_section(folder: Path) -> None:
    """From a lost run the reader gets to its cause with one click."""
    page = (folder / "report.html").read_text().replace("<wbr>", "")

    assert '<a href="#failures">See Failures for the cause.</a>' in page


def test_output_of_a_run_is_linked_where_it_is(tmp_path: Path) -> None:
    """Both pages link a folder of logs that exists, and only name one that does not."""
    comparison = hostile()
    failed = next(run for run in comparison.runs if not run.outcome.completed)
    (tmp_path / failed.log_dir).mkdir(parents=True)

    write_report(comparison, tmp_path)

    assert f"[All output]({failed.log_dir})" in (tmp_path / "report.md").read_text()
    page = Page((tmp_path / "report.html").read_text())
    assert ("a", "href", failed.log_dir) in page.attributes
    assert ("a", "href", comparison.runs[0].log_dir) not in page.attributes


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
                    arm_of("serial"),
                    [record(spec_of("serial"), [epoch(1.0)], quality_target=None)],
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
    rooms = {"ringside.compare", "ringside_core.workloads", "launch", "trainers", "backends"}
    assert not (forbidden | rooms) & heavy


def _modules(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_names_get_places_to_break_and_stay_escaped() -> None:
    """A <wbr> is markup; the name is text."""
    assert breaks("a_b<c>") == "a_<wbr>b&lt;c&gt;"
