"""A report is computed again from its raw samples, and no changed sample goes unseen."""

import csv
import hashlib
import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import ringside.cli.main
from ringside.report.check import Checked, check_report
from ringside.report.printed import (
    Difference,
    csv_differences,
    differing,
    html_page,
    log_page,
    markdown_page,
)
from ringside.report.second_opinion import (
    Opinion,
    against_markdown,
    drift_of,
    geometric_mean,
    ratio_of,
    second_opinion,
)
from ringside.report.source import digest_of, read_comparison
from ringside.report.witnesses import against_records
from ringside_core.specs import RefusalError
from tests.unit.report.small import Body, change, small

RECORD = "runs.4.records.0"
EPOCH = f"{RECORD}.epochs.2"


def places(checked: Checked, file: str) -> str:
    """Where one file differs, as text."""
    return "\n".join(str(one) for one in checked.differences if one.file == file)


def test_an_honest_report_passes(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every file, drawings too, is made again word by word; many numbers are compared."""
    code = ringside.cli.main.run(["verify-report", str(written)])

    said = capsys.readouterr().out
    assert code == 0, said
    assert "the report is what the raw samples say" in said
    assert "other" not in said and "Not covered" not in said
    counts = {
        what: int(n.replace(",", "")) for n, what in re.findall(r"^ *([\d,]+)  (.+)$", said, re.M)
    }
    assert counts["processes' own records"] == sum(len(run.records) for run in small().runs)
    assert counts["certificates"] == 3
    assert counts["texts and numbers of samples.csv"] == 1 + 16 * 4 * 30
    assert counts["numbers computed a second way"] > 12 * 6
    assert min(counts.values()) > 0


def of_serial(body: Body, number: int) -> tuple[Body, str]:
    """A record of serial, whose one process no other contradicts: (it, where it is)."""
    run = [run for run in body["runs"] if run["arm"] == "serial"][number]
    return run["records"][0], f"runs/{run['position']:03d}/records/rank-0.json"


def later(epoch: Body) -> None:
    """One step of thirty ends a nanosecond later."""
    epoch["step_end_s"][7] += 1e-9


# What is changed in a record: (how, which field, which figure of results.csv it moves).
SPOILT: tuple[tuple[Callable[[Body], object], str, str], ...] = (
    (lambda r: later(r["epochs"][2]), "epochs.2.step_end_s.7", ""),
    (lambda r: r["epochs"][2].update(examples=121), "epochs.2.examples", "throughput_examples_s"),
    (
        lambda r: r["epochs"][2].update(train_s=r["epochs"][2]["train_s"] * 1.2),
        "epochs.2.train_s",
        "throughput_examples_s",
    ),
    (lambda r: r.update(cpu_s=r["cpu_s"] + 1), "cpu_s", "cpu_s_per_1000_examples"),
    (lambda r: r.update(peak_memory_bytes=7 * 10**8), "peak_memory_bytes", "peak_memory_bytes"),
    (lambda r: r.update(startup_s=9.0), "startup_s", "startup_s"),
)


def test_every_changed_sample_is_named(folder: Path) -> None:
    """In results.json alone: the processes' own records, digests, pages and figures disagree."""
    own: list[str] = []

    def spoil(body: Body) -> None:
        for index, (how, path, _) in enumerate(SPOILT):
            record, file = of_serial(body, index % 4)
            how(record)
            own.append(f"{file}: {path}: ")

    change(folder, spoil)

    checked = check_report(folder)

    told = [str(one) for one in checked.differences]
    assert sum(one.startswith("runs/") for one in told) == len(SPOILT)
    assert all(any(one.startswith(start) for one in told) for start in own)
    for _, _, figure in SPOILT:
        assert f"arm serial / {figure}" in places(checked, "results.csv")
    for page in ("report.html", "report.md"):
        assert "Digest of the raw samples: " in places(checked, page)
        assert "serial / Examples/s" in places(checked, page)
    assert "execution 7 / step_end_s" in places(checked, "samples.csv")
    assert "(computed a second way)" in places(checked, "report.md")


@pytest.mark.parametrize("index", range(len(SPOILT)))
def test_one_changed_sample_is_enough(folder: Path, index: int) -> None:
    """Each alone changes the digest, and is found in the record of the process."""
    change(folder, lambda body: SPOILT[index][0](of_serial(body, 1)[0]))

    asked = against_records(folder, read_comparison(folder))

    assert [one.place for one in asked.differences] == [SPOILT[index][1]]


def test_records_of_processes_are_witnesses(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One changed in its last bit, one gone, one cut, one that nobody knows, a folder gone."""
    file = folder / "runs/000/records/rank-0.json"
    body = json.loads(file.read_text())
    ends = body["epochs"][1]["step_end_s"]
    ends[3] = float(np.nextafter(ends[3], 9))
    file.write_text(json.dumps(body))
    (folder / "runs/001/records/rank-0.json").unlink()
    cut = folder / "runs/002/records/rank-0.json"
    cut.write_text(cut.read_text()[:1000])
    shutil.copy(folder / "runs/003/records/rank-0.json", folder / "runs/003/records/rank-7.json")
    shutil.rmtree(folder / "runs/004")

    code = ringside.cli.main.run(["verify-report", str(folder)])

    said = capsys.readouterr().out
    assert code == 1
    assert "4 differences" in said
    assert "runs/000/records/rank-0.json: epochs.1.step_end_s.3: " in said
    assert "results.json: runs.0.records.0.epochs.1.step_end_s.3" in said
    assert "runs/001/records/rank-0.json: the whole file: nothing → runs.1.records.0" in said
    assert "runs/002/records/rank-0.json: the whole file: " in said
    assert "runs/003/records/rank-7.json: the whole file: a record → none in runs.3" in said
    assert "1 of 12 runs lie no longer" in said


# What is changed in a written file: (file, pattern, replacement, how it is told).
PAGES = (
    ("report.md", r"(\| serial \| 1 \| )[\d,]+", r"\g<1>9,999", "serial / Examples/s"),
    ("report.html", r">982<small>", r">928<small>", "serial / Examples/s"),
    ("report.html", r'( d="M )(\d)', r"\g<1>1\g<2>", "drawing '"),
    ("results.csv", r"(?m)^(0,.*?),completed,", r"\1,failed,", "failed → completed"),
    ("samples.csv", r"(?m)^(run,5,[^\n]*,)yes,", r"\1no,", "/ counted: no → yes"),
    ("mllog.txt", r'"seed", "value": 1', '"seed", "value": 2', "run-000 / seed / value: 2 → 1"),
)


def test_changed_pages_are_named_by_place(folder: Path) -> None:
    """A number, a heading, a drawing, a field, a word, a value: each in its file."""
    for name, old, new, _ in PAGES:
        text, count = re.subn(old, new, (folder / name).read_text(), count=1, flags=re.DOTALL)
        assert count == 1, name
        (folder / name).write_text(text)

    checked = check_report(folder)

    for name, _, _, place in PAGES:
        assert place in places(checked, name)
    # report.md and results.csv are also read by the second way, samples.csv tells it what counts
    assert {one.file for one in checked.differences} == {name for name, *_ in PAGES}


def test_changed_markup_is_named_by_its_line(folder: Path) -> None:
    """Where every text is the same and the file is not."""
    file = folder / "report.md"
    file.write_text(file.read_text().replace("\n\n", "\n\n\n", 1))

    assert "line 3, markup" in places(check_report(folder), "report.md")


def test_tables_that_cannot_be_read_are_differences(folder: Path) -> None:
    """A column that is gone is told, by both ways, without a traceback."""
    file = folder / "results.csv"
    file.write_text(file.read_text().replace("round_counts", "rounds", 1))

    told = [str(one) for one in check_report(folder).differences]

    assert any(one.startswith("results.csv: line 1: ") for one in told)
    assert any("what the second computation reads: KeyError: 'round_counts'" in one for one in told)


def run_at(body: Body, index: int = 4) -> Body:
    """One run of a results.json."""
    run: Body = body["runs"][index]
    return run


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda f: (f / "results.json").unlink(), "results.json of a comparison"),
        (lambda f: (f / "report.md").unlink(), "report.md of a comparison"),
        (lambda f: (f / "results.csv").unlink(), "a comparison. Received: [Errno 2] No such file"),
        (lambda f: (f / "samples.csv").unlink(), "samples.csv of a comparison"),
        (lambda f: (f / "mllog.txt").write_bytes(b"\xff"), "mllog.txt: "),
        (lambda f: (f / "results.json").write_text("[1]"), "results.json: schema_version=None"),
        (
            lambda f: (f / "results.json").write_text((f / "results.json").read_text()[:9999]),
            "whole JSON",
        ),
        (
            lambda f: change(f, lambda b: run_at(b)["records"][0]["epochs"][2].update(train_s=0)),
            f"results.json: {EPOCH}.train_s: ",
        ),
        (
            lambda f: change(f, lambda b: run_at(b)["records"][0]["spec"].update(seed=5)),
            "results.json: runs.4: records.0.spec.seed=5",
        ),
        (
            lambda f: change(
                f, lambda b: run_at(b)["records"][0]["machine"].update(cpu_model="6502")
            ),
            "results.json: 6502 in run",
        ),
    ],
)
def test_what_is_no_comparison_is_refused(
    folder: Path, spoil: Callable[[Path], object], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 with file and field, and no traceback."""
    spoil(folder)

    code = ringside.cli.main.run(["verify-report", str(folder)])

    said = capsys.readouterr().err
    assert code == 2
    assert words in said
    assert "Traceback" not in said


def test_the_digest_is_that_of_the_file(written: Path) -> None:
    """What sha256sum prints of results.json."""
    expected = hashlib.sha256((written / "results.json").read_bytes()).hexdigest()

    assert digest_of(small().to_json().encode()) == expected
    for name in ("report.html", "report.md"):
        assert expected in (written / name).read_text()


def test_the_second_opinion_against_hand_arithmetic(written: Path) -> None:
    """Throughput of one run from its records; the geometric mean by scipy."""
    opinion = second_opinion(written)
    run = next(run for run in small().runs if run.arm == "horovod ×2")
    counted = [list(pair) for pair in zip(*(one.epochs[1:] for one in run.records), strict=True)]
    seconds = sum(max(one.train_s for one in pair) for pair in counted)

    rate = opinion.figures.at[run.position, "throughput_examples_s"]
    rates = opinion.rates.loc[opinion.rates["arm"] == "serial", "rate"]
    value, low, high = geometric_mean(rates)

    assert rate == pytest.approx(3 * 120 / seconds, rel=1e-12)
    assert value == pytest.approx(stats.gmean(rates), rel=1e-12)
    half = stats.t.ppf(0.975, 3) * np.log(rates).std(ddof=1) / 2
    assert (low, high) == pytest.approx((value * np.exp(-half), value * np.exp(half)), rel=1e-12)


def test_the_second_way_takes_drift_and_rounds_out() -> None:
    """Rates made of known arms, rounds and drift: the ratio is exact, and nothing is left over."""
    order = [(0, "abc"), (1, "cab"), (2, "bca"), (3, "acb")]
    arms, rounds = {"a": 100.0, "b": 80.0, "c": 125.0}, (1.0, 1.3, 0.9, 1.1)
    rows = [
        (arm, number, 3 * number + place)
        for number, of_round in order
        for place, arm in enumerate(of_round)
    ]
    rates = pd.DataFrame(rows, columns=["arm", "round", "position"])
    rates["rate"] = [
        arms[arm] * rounds[number] * np.exp(0.07 * position) for arm, number, position in rows
    ]
    opinion = Opinion(pd.DataFrame(), rates, drift_of(rates), dict.fromkeys(arms, 1))

    ratio = ratio_of(opinion, "a", "b")

    assert opinion.drift[0] == pytest.approx(0.07, rel=1e-9)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((1.25, 1.25, 1.25), rel=1e-6)
    assert ratio.rounds == 4


def test_the_second_opinion_reads_the_printed_digits(written: Path) -> None:
    """The last printed digit of one number is enough to differ; the first way is not asked."""
    text = (written / "report.md").read_text()
    row = re.search(r"^\| horovod ×2 \| 2 \| [\d,]*(\d) ", text, re.M)
    assert row is not None
    last = row.start(1)
    spoilt = text[:last] + str((int(row[1]) + 5) % 10) + text[last + 1 :]
    opinion = second_opinion(written)

    right, wrong = (against_markdown(opinion, markdown_page(one))[1] for one in (text, spoilt))

    assert right == []
    assert len(wrong) == 1
    assert "horovod ×2 / Examples/s" in str(wrong[0])


def test_places_of_a_page() -> None:
    """The same words at the same places in Markdown and in HTML."""
    markdown = markdown_page(
        "# T\n\n## A \\| B\n\nSaid \\*so\\*.\n\n| x | y |\n| :--- | ---: |\n| a | 1 \\| 2 |\n"
    )
    page = html_page(
        "<style>p {}</style><h1>T</h1><h2>A | B</h2><p>Said <b>*so*</b>.</p>"
        "<table><thead><tr><th>x</th><th>y</th></tr></thead>"
        "<tr><td>a</td><td>1 | 2</td></tr></table>"
        '<svg aria-label="plot"><path d="M 1 2"/><text>7</text></svg>'
    )

    assert markdown.tables == page.tables == [("A | B", ["x", "y"], [["a", "1 | 2"]])]
    assert markdown.texts["A | B / a / y"] == page.texts["A | B / a / y"] == "1 | 2"
    assert "Said *so*." in markdown.texts.values()
    assert "Said *so*." in page.texts.values()
    assert "M 1 2" in page.texts["drawing 'plot'"] and "7" in page.texts["drawing 'plot'"]


def test_differences_are_cut_to_what_differs() -> None:
    """A long text shows the part that is not the same."""
    one = str(Difference("f", "p", "a" * 500 + "1" + "b" * 500, "a" * 500 + "2" + "b" * 500))

    assert len(one) < 300
    assert "1b" in one and "2b" in one
    assert list(differing("f", {"a": "1", "b": "2"}, {"a": "1", "c": "3"})) == [
        Difference("f", "c", "nothing", "3"),
        Difference("f", "b", "2", "nothing"),
    ]


def test_csv_differences_name_row_and_column() -> None:
    """Changed, missing and surplus rows; floats as `csv` writes them."""
    rows = [("k", "v"), ("a", 0.1), ("b", None), ("c", 3)]
    stream = io.StringIO()
    csv.writer(stream).writerows(rows)
    lines = stream.getvalue().splitlines(keepends=True)

    def told(found: list[str]) -> list[str]:
        return [
            f"{d.place}: {d.found} → {d.expected}" for d in csv_differences("f", found, rows, ["k"])
        ]

    assert told(lines) == []
    assert told([lines[0], "a,0.2\n", *lines[2:]]) == ["k a / v: 0.2 → 0.1"]
    assert told(lines[:3]) == ["line 4: nothing → c,3"]
    assert told([*lines, "d,4\n"]) == ["line 5: d,4 → nothing"]


def test_a_line_that_is_no_log_line_is_a_place_of_its_own() -> None:
    """Nothing in mllog.txt is skipped."""
    assert log_page("what\n").texts == {"line 1 / text": "what"}


@pytest.mark.parametrize("text", ["", "# x\n"])
def test_a_page_without_results_does_not_pass(written: Path, text: str) -> None:
    """Nothing to compare is not the same as nothing that differs."""
    count, found = against_markdown(second_opinion(written), markdown_page(text))

    assert count == 0
    assert [str(one) for one in found] == ["report.md: results: no table → a table with Examples/s"]


def test_refusals_of_what_contradicts_itself_name_the_file(folder: Path) -> None:
    """Records that are fine one by one and not together."""
    index = next(i for i, run in enumerate(small().runs) if len(run.records) == 2)
    change(folder, lambda b: b["runs"][index]["records"][1]["epochs"][1].update(examples=99))

    with pytest.raises(RefusalError, match=r"Received: .*results\.json: run 'horovod ×2' of round"):
        check_report(folder)
