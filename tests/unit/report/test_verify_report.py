"""What a report is verified against: the bytes of results.json, its code, its witnesses."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

import ringside.cli.main
from ringside.report.check import check_report
from ringside.report.source import read_comparison, report_version
from ringside.report.witnesses import against_certificates
from tests.unit.report.small import small

pytestmark = pytest.mark.usefixtures("same_plots")


def test_a_results_file_in_other_bytes_has_another_digest(folder: Path) -> None:
    """Not one value is another, and the file is: whoever compares digests is told."""
    file = folder / "results.json"
    file.write_text(json.dumps(json.loads(file.read_text()), indent=2))
    expected = hashlib.sha256(file.read_bytes()).hexdigest()

    checked = check_report(folder)

    assert {one.file for one in checked.differences} == {"report.html", "report.md"}
    assert all(expected in str(one) for one in checked.differences)


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
@pytest.mark.parametrize("other", ["0" * 64, "unknown"])
def test_a_report_of_other_code_is_told_first(
    folder: Path, name: str, other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It cannot be checked, exit code 2: what differs may be the code."""
    text = (folder / name).read_text()
    assert text.count(report_version()) == 1
    (folder / name).write_text(text.replace(report_version(), other))
    (folder / "runs/001/records/rank-0.json").unlink()

    code = ringside.cli.main.run(["verify-report", str(folder)])

    told = capsys.readouterr()
    assert (code, told.out) == (2, "")
    assert f"{name}, written by other code" in told.err
    assert f"Run `ringside report {folder}` first" in told.err


def test_certificates_are_witnesses(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that said otherwise, one cut, one gone, one of an arm nobody knows, one twice."""
    place = folder / "certificates"
    texts = [(place / f"{index}.json").read_text() for index in range(3)]
    (place / "0.json").write_text(texts[0].replace('"steps": 20', '"steps": 21'))
    (place / "1.json").write_text(texts[1][:100])
    (place / "twice.json").write_text(texts[2])
    alien = json.loads(texts[2])
    alien["arm"]["label"] = "alien"
    (place / "alien.json").write_text(json.dumps(alien))
    finished = read_comparison(folder).replace(ended_because="enough")

    asked = against_certificates(folder, finished)

    told = [str(one) for one in asked.differences]
    first, second = (one.arm.label for one in finished.certificates[:2])
    assert first == "serial" and asked.count == 2
    assert told[0].startswith("certificates/1.json: the whole file: A Certificate must be whole")
    assert "certificates/twice.json: the whole file: a second certificate of" in told[1]
    assert "certificates/0.json: steps: 21 → 20 (results.json: certificates.0.steps)" in told[2]
    assert told[3].endswith(f"nothing → certificates.1 of results.json, {second!r}")
    assert "certificates/alien.json: the whole file: a certificate of 'alien'" in told[4]
    assert len(told) == 5
    assert ringside.cli.main.run(["verify-report", str(folder)]) == 1
    assert "certificates/0.json: steps: 21 → 20" in capsys.readouterr().out


def test_certificates_that_are_gone_are_told(folder: Path) -> None:
    """Then results.json alone says what was proved; a comparison without any lacks none."""
    shutil.rmtree(folder / "certificates")

    gone = against_certificates(folder, small())
    none = against_certificates(folder, small().replace(certificates=()))

    assert (gone.count, gone.differences) == (0, ())
    assert "results.json is their only witness" in gone.note
    assert (none.count, none.differences, none.note) == (0, (), "")


def test_what_is_not_covered_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The pages of two comparisons are of another folder too."""
    for name in ("side_by_side.html", "side_by_side.md"):
        (folder / name).write_text("anything")

    code = ringside.cli.main.run(["verify-report", str(folder)])

    assert code == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.endswith("samples say. Not covered: side_by_side.html, side_by_side.md.")
