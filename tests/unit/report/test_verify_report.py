"""`ringside verify-report`: the pages are rendered again from the samples, and compared."""

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import ringside.cli.main
from ringside.report.check import check_report
from ringside.report.source import report_version
from tests.unit.report.small import Body, change

pytestmark = pytest.mark.usefixtures("same_plots")


def different(folder: Path) -> dict[str, str]:
    """The files that differ, each with its first line that does."""
    return {name: where for name, where in check_report(folder).items() if where}


def test_an_honest_report_passes(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every file, drawings too, is rendered again byte by byte."""
    code = ringside.cli.main.run(["verify-report", str(written)])

    said = capsys.readouterr().out
    assert code == 0, said
    assert said.rstrip().endswith(
        "samples.csv, results.csv, report.md, report.html are what results.json says."
    )


def later(record: Body) -> None:
    """One step ends a nanosecond later."""
    record["epochs"][2]["step_end_s"][7] += 1e-9


# What is changed in a record: (how, files that show it beside the pages).
SPOILT: tuple[tuple[Callable[[Body], object], set[str]], ...] = (
    (later, {"samples.csv"}),
    (lambda r: r["epochs"][2].update(examples=119), {"samples.csv", "results.csv"}),
    (lambda r: r.update(cpu_s=r["cpu_s"] + 1), {"results.csv"}),
    (lambda r: r.update(startup_s=9.0), {"results.csv"}),
)


@pytest.mark.parametrize(("how", "files"), SPOILT)
def test_a_changed_sample_is_seen(
    folder: Path, how: Callable[[Body], object], files: set[str]
) -> None:
    """In the figures that rest on it, and in both pages by their digest."""
    change(folder, lambda b: how(next(r for r in b["runs"] if r["arm"] == "serial")["records"][0]))

    assert different(folder).keys() >= {"report.html", "report.md"} | files


# What is changed in a written file: (file, pattern, replacement, words of the message).
PAGES = (
    ("report.md", r"(\| serial \| 1 \| )[\d,]+", r"\g<1>9,999", "| serial | 1 | 9,999 "),
    ("report.html", r">966<small>", r">696<small>", ">696<small>"),
    ("report.html", r'( d="M )(\d)', r"\g<1>1\g<2>", ' d="M 1'),
    ("results.csv", r"(?m)^(0,.*?),completed,", r"\1,failed,", ",failed,"),
    ("samples.csv", r"(?m)^(run,5,[^\n]*,)yes,", r"\1no,", ",no,"),
    ("samples.csv", r"\Z", "run,99\n", ": run,99 → \n"),
    ("samples.csv", r"[^\n]*\n\Z", "", ":  → run,"),
    ("report.md", r"\n\Z", "\n\n\x1b[31m", r": \x1b[31m → no line"),
    ("report.md", "\n", "\r\n", "\\r → "),
)


@pytest.mark.parametrize(("name", "old", "new", "words"), PAGES)
def test_a_changed_page_is_named_with_its_line(
    folder: Path, name: str, old: str, new: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A number, a drawing, a field, a row, a value, the end of a line; nothing a terminal obeys."""
    text = (folder / name).read_bytes().decode()
    changed, count = re.subn(old, new, text, count=1, flags=re.DOTALL if "d=" in old else 0)
    assert count == 1
    (folder / name).write_bytes(changed.encode())

    code = ringside.cli.main.run(["verify-report", str(folder)])

    said = capsys.readouterr().out
    assert code == 1
    assert "is not what results.json says" in said
    assert said.count("first in line") == 1
    assert f"  {name}, first in line " in said
    assert words in said
    assert len(said.splitlines()[-1]) < 320


def test_a_results_file_in_other_bytes_has_another_digest(folder: Path) -> None:
    """All values are the same; the pages name the digest of the file."""
    file = folder / "results.json"
    file.write_text(json.dumps(json.loads(file.read_text()), indent=2))
    expected = hashlib.sha256(file.read_bytes()).hexdigest()

    found = different(folder)

    assert found.keys() == {"report.html", "report.md"}
    assert all(expected[:20] in where for where in found.values())


def test_a_report_is_written_again_beside_its_results(folder: Path) -> None:
    """results.json stays as it is, byte by byte, and the new report is of these bytes."""
    file = folder / "results.json"
    file.write_text(json.dumps(json.loads(file.read_text()), indent=2))
    before = (file.read_bytes(), file.stat().st_ino)

    codes = [
        ringside.cli.main.run([command, str(folder)]) for command in ("report", "verify-report")
    ]

    assert codes == [0, 0]
    assert (file.read_bytes(), file.stat().st_ino) == before


@pytest.mark.parametrize("name", ["report.html", "report.md"])
def test_a_report_of_other_code_is_named_first(
    folder: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It cannot be checked, exit code 2: the code may be the reason for a difference."""
    text = (folder / name).read_text()
    assert text.count(report_version()) == 1
    (folder / name).write_text(text.replace(report_version(), "0" * 64))

    code = ringside.cli.main.run(["verify-report", str(folder)])

    output = capsys.readouterr()
    assert (code, output.out) == (2, "")
    assert f"{name}, written by other code" in output.err
    assert f"Run `ringside report {folder}` first" in output.err


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda f: (f / "results.json").unlink(), "results.json of a comparison"),
        (lambda f: (f / "results.csv").unlink(), "a comparison. Received: [Errno 2] No such file"),
        (lambda f: (f / "samples.csv").write_bytes(b"\xff"), "samples.csv: "),
        (
            lambda f: (f / "results.json").write_text((f / "results.json").read_text()[:9999]),
            "whole JSON",
        ),
        (
            lambda f: change(f, lambda b: b["runs"][4]["records"][0]["spec"].update(seed=5)),
            "results.json: runs.4: records.0.spec.seed=5",
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
