"""A report is computed again from its raw samples, and no changed sample goes unseen."""

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ringside.cli.main
from ringside.report.check import Checked, check_report
from ringside.report.differences import Difference, line_differences
from ringside.report.source import digest_of, read_comparison
from ringside.report.witnesses import against_records
from ringside_core.specs import RefusalError
from tests.unit.report.small import EXAMPLES, Body, change, small

pytestmark = pytest.mark.usefixtures("same_plots")

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
    assert counts["lines of samples.csv"] == 1 + 16 * 4 * 30
    assert counts["numbers computed a second way"] > 12 * 7
    assert min(counts.values()) > 0


def of_serial(body: Body, number: int) -> tuple[Body, str]:
    """A record of serial, whose one process no other contradicts: (it, where it is)."""
    run = [run for run in body["runs"] if run["arm"] == "serial"][number]
    return run["records"][0], f"runs/{run['position']:03d}/records/rank-0.json"


def later(epoch: Body) -> None:
    """One step of thirty ends a nanosecond later."""
    epoch["step_end_s"][7] += 1e-9


# What is changed in a record: (how, which field).
SPOILT: tuple[tuple[Callable[[Body], object], str], ...] = (
    (lambda r: later(r["epochs"][2]), "epochs.2.step_end_s.7"),
    (lambda r: r["epochs"][2].update(examples=EXAMPLES + 1), "epochs.2.examples"),
    (
        lambda r: r["epochs"][2].update(train_s=r["epochs"][2]["train_s"] * 1.2),
        "epochs.2.train_s",
    ),
    (lambda r: r.update(cpu_s=r["cpu_s"] + 1), "cpu_s"),
    (lambda r: r.update(peak_memory_bytes=7 * 10**8), "peak_memory_bytes"),
    (lambda r: r.update(startup_s=9.0), "startup_s"),
)


def test_every_changed_sample_is_named(folder: Path) -> None:
    """In results.json alone: the processes' own records, digests, pages and figures disagree."""
    own: list[str] = []

    def spoil(body: Body) -> None:
        for index, (how, path) in enumerate(SPOILT):
            record, file = of_serial(body, index % 4)
            how(record)
            own.append(f"{file}: {path}: ")

    change(folder, spoil)

    checked = check_report(folder)

    told = [str(one) for one in checked.differences]
    assert sum(one.startswith("runs/") for one in told) == len(SPOILT)
    assert all(any(one.startswith(start) for one in told) for start in own)
    moved = [one for one in checked.differences if one.file == "results.csv"]
    assert all(",serial,serial), " in one.place for one in moved)
    # The second has one example too many, and so the arm is not comparable.
    columns = [one.place.partition("), ")[2].partition(", comparable and ")[0] for one in moved]
    assert columns == [
        "peak_pss_bytes",
        "throughput_examples_s, whole_epochs_examples_s, padding_share, startup_s, "
        "cpu_s_per_1000_examples, each_example_once and 2 more",
        "throughput_examples_s, whole_epochs_examples_s",
        "cpu_s_per_1000_examples",
    ]
    digest = hashlib.sha256((folder / "results.json").read_bytes()).hexdigest()
    for page in ("report.html", "report.md"):
        assert f"Digest of the raw samples: another one → {digest}" in places(checked, page)
        assert "serial" in places(checked, page)
    assert any(one.file == "samples.csv" for one in checked.differences)


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
    assert "1 of 12 runs are no longer" in said


# What is changed in a written file: (file, pattern, replacement, how it is told).
PAGES = (
    ("report.md", r"(\| serial \| 1 \| )[\d,]+", r"\g<1>9,999", "| serial | 1 | 9,999 "),
    ("report.html", r">966<small>", r">696<small>", ">696<small>"),
    ("report.html", r'( d="M )(\d)', r"\g<1>1\g<2>", ' d="M 1'),
    (
        "results.csv",
        r"(?m)^(0,.*?),completed,",
        r"\1,failed,",
        "2 (0,0,mirrored ×2,mirrored), outcome: ",
    ),
    ("results.csv", "round_counts", "rounds", "line 1 (position,round,arm,group), round_"),
    ("samples.csv", r"(?m)^(run,5,[^\n]*,)yes,", r"\1no,", ",no,"),
    ("samples.csv", r"(?m)^run,5,.*?\n", "", ": nothing → run,5,"),
    ("samples.csv", r"\Z", "run,99\n", ": run,99 → "),
    ("mllog.txt", r'"seed", "value": 1', '"seed", "value": 2', '"value": 2'),
    ("mllog.txt", r":::MLLOG", "what :::MLLOG", "what :::MLLOG"),
    ("report.md", "\n\n", "\n\n\n", ":  → nothing"),
    ("report.md", "\n", "\r\n", "\\r → "),
)


@pytest.mark.parametrize(("name", "old", "new", "told"), PAGES)
def test_a_changed_page_is_told_by_its_line(
    folder: Path, name: str, old: str, new: str, told: str
) -> None:
    """A number, a drawing, a field, a row, a value, an empty line, the end of a line."""
    text = (folder / name).read_bytes().decode()
    changed, count = re.subn(old, new, text, count=1, flags=re.DOTALL if "d=" in old else 0)
    assert count == 1
    (folder / name).write_bytes(changed.encode())

    checked = check_report(folder)

    assert told in places(checked, name)
    assert {one.file for one in checked.differences} == {name}


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


def test_refusals_of_what_contradicts_itself_name_the_file(folder: Path) -> None:
    """Records that are fine one by one and not together."""
    index = next(i for i, run in enumerate(small().runs) if len(run.records) == 2)
    change(folder, lambda b: b["runs"][index]["records"][1]["epochs"][1].update(examples=99))

    with pytest.raises(RefusalError, match=r"Received: .*results\.json: run 'horovod ×2' of round"):
        check_report(folder)


ROWS = [f"run,{number},{number / 7}" for number in range(49_000)]
HALF = [row + "1" * (number % 2) for number, row in enumerate(ROWS)]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("removed", [slice(0, 0), slice(1, 2), slice(-9, None), slice(9, -9)])
def test_a_large_spoilt_file_is_told_at_once(removed: slice) -> None:
    """As many lines as a real samples.csv, every second one changed, and lines taken out."""
    spoilt = HALF.copy()
    del spoilt[removed]

    for one, other in ((spoilt, ROWS), (ROWS, spoilt)):
        told = list(line_differences("f", "\n".join(one), "\n".join(other)))
        assert told[0].place == "line 2"
        assert all(difference.found != difference.expected for difference in told)


@pytest.mark.parametrize("index", [0, 1, 25_000, len(ROWS) - 1])
def test_one_line_put_in_or_taken_out_is_all_that_is_told(index: int) -> None:
    """All others are equal; also where the line says `nothing`, as the message does."""
    longer = [*ROWS[:index], "nothing", *ROWS[index:]]

    (more,) = line_differences("f", "\n".join(longer), "\n".join(ROWS))
    (less,) = line_differences("f", "\n".join(ROWS), "\n".join(longer))

    assert more.place == less.place == f"line {index + 1}"


def test_a_line_added_does_not_hide_what_is_changed_near_it() -> None:
    """Lines behind the added one are beside their partners again."""
    spoilt = [*ROWS[:5], "added", *ROWS[5:]]
    spoilt[300] += "1"
    spoilt[40_000] += "1"

    told = [one.place for one in line_differences("f", "\n".join(spoilt), "\n".join(ROWS))]

    assert told == ["line 6", "line 301"]


def test_a_row_of_other_cells_is_told_whole() -> None:
    """A comma too many: no column can be named; no name is obeyed by a terminal."""
    heads = "position,arm\n"
    (plain,) = line_differences("f.csv", f"{heads}0,a,b", f"{heads}0,a")
    (coloured,) = line_differences("f.csv", f"{heads}0,a", f"{heads}0,\x1b[31m")

    assert plain.place == "line 2"
    assert coloured.place == r"line 2 (0,\x1b[31m), arm"


def test_differences_are_cut_to_what_differs() -> None:
    """Of a long text the part around the first difference; nothing that a terminal obeys."""
    one = str(Difference("f", "p", "a" * 500 + "1" + "b" * 500, "a" * 500 + "2" + "b" * 500))

    assert len(one) < 300
    assert "1b" in one and "2b" in one
    assert str(Difference("f", "p", "\x1b[31m", "×")) == r"f: p: \x1b[31m → ×"
