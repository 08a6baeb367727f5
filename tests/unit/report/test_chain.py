"""No run can be taken out of a results file, exchanged or changed without being seen."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import ringside.cli.main
from ringside.report.check import check_report
from tests.unit.report.small import Body, change

pytestmark = pytest.mark.usefixtures("same_plots")

EACH = 3  # arms, and so runs in a round


def verified(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Write the report of a spoilt results file again, as a forger would, and verify it."""
    assert ringside.cli.main.run(["report", str(folder)]) == 0
    capsys.readouterr()
    code = ringside.cli.main.run(["verify-report", str(folder)])
    return code, capsys.readouterr().out


def without_round(number: int, *, renumbered: bool) -> Callable[[Body], None]:
    """Take a round out of a results file; then it shows no gap if all is numbered anew."""

    def spoil(body: Body) -> None:
        body["ended_because"] = "enough"
        body["runs"] = [run for run in body["runs"] if run["round"] != number]
        if renumbered:
            for position, run in enumerate(body["runs"]):
                run["position"], run["round"] = position, position // EACH
        body["rounds"] = max(run["round"] for run in body["runs"]) + 1

    return spoil


@pytest.mark.parametrize("folders_too", [False, True])
@pytest.mark.parametrize(
    ("number", "renumbered", "words"),
    [
        (1, False, "rounds: none of round 1"),
        (1, True, "runs.3.previous"),
        (3, False, "last_run"),
        (0, True, "runs.0.previous"),
    ],
)
def test_a_round_that_was_removed_is_seen(
    folder: Path,
    number: int,
    renumbered: bool,
    words: str,
    folders_too: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In the middle, at the end, at the start; with or without the folders of its runs."""
    change(folder, without_round(number, renumbered=renumbered))
    if folders_too:
        for position in range(EACH * number, EACH * (number + 1)):
            shutil.rmtree(folder / f"runs/{position:03d}")

    code, said = verified(folder, capsys)

    assert code == 1
    assert words in said
    assert ("runs/003" in said) == (not folders_too and number == 1)


def exchanged(body: Body) -> None:
    """Two runs of one arm change places, with all that they hold."""
    one, other = [run for run in body["runs"] if run["arm"] == "serial"][:2]
    for name in ("records", "wall_s", "log_dir", "load"):
        one[name], other[name] = other[name], one[name]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (exchanged, ".previous"),
        (lambda body: body["runs"][2].update(wall_s=1.0), "runs.3.previous"),
        (lambda body: body["runs"][-1].update(wall_s=1.0), "last_run"),
        (lambda body: body["runs"][4].update(previous=None), "runs.4.previous"),
        (lambda body: body["runs"].reverse(), "runs.0"),
    ],
)
def test_a_changed_run_breaks_the_chain(
    folder: Path,
    spoil: Callable[[Body], object],
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What no record of a process holds is covered too: the wall time of a run."""
    change(folder, spoil)

    code, said = verified(folder, capsys)

    assert code == 1
    assert words in said


def test_a_gap_in_the_positions_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As after a run that was taken out of the last, unfinished round."""
    change(folder, lambda body: body["runs"].pop(-2))

    code, said = verified(folder, capsys)

    assert code == 1
    assert "runs.10.position: 11 → 10" in said


def test_a_folder_of_a_run_that_nobody_names_is_told(folder: Path) -> None:
    """In a finished comparison. The run that Ctrl-C interrupted has a folder and is no run."""
    (folder / "runs/012-serial/records").mkdir(parents=True)
    interrupted = check_report(folder).differences

    (folder / "runs/013-serial").mkdir()
    second = check_report(folder).differences
    (folder / "runs/013-serial").rmdir()
    change(folder, lambda body: body.update(ended_because="enough"))
    ringside.cli.main.run(["report", str(folder)])
    finished = check_report(folder).differences

    assert interrupted == ()
    assert [one.file for one in second] == ["runs/013-serial"]
    assert [one.file for one in finished] == ["runs/012-serial"]


def test_folders_of_an_interrupted_live_round_are_no_surplus(folder: Path) -> None:
    """All its arms have been started, and none of them is a run; one more was never an arm's."""
    change(folder, lambda body: body.update(live=True))
    for position in range(12, 12 + EACH + 1):
        (folder / f"runs/{position:03d}-serial").mkdir(parents=True)

    found = [
        one.file for one in check_report(folder).differences if one.place == "the whole folder"
    ]

    assert found == [f"runs/{12 + EACH:03d}-serial"]


def test_an_older_file_without_hashes_is_told_as_such(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It passes: nobody wrote the hashes then. It says what is not protected."""

    def older(body: Body) -> None:
        del body["last_run"]
        for run in body["runs"]:
            del run["previous"]

    change(folder, older)

    code, said = verified(folder, capsys)

    assert code == 0
    assert "note: The runs carry no hashes of each other" in said


def test_the_chain_is_of_the_file_as_it_was_written(folder: Path) -> None:
    """A field that a later version adds to a run does not break the chains of older files."""
    body = json.loads((folder / "results.json").read_text())

    before = json.dumps(body["runs"][0], sort_keys=True, separators=(",", ":"))

    assert body["runs"][0]["previous"] == ""
    assert body["runs"][1]["previous"] == hashlib.sha256(before.encode()).hexdigest()


# The load of a run


def test_a_load_is_computed_again_from_what_was_counted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A quiet round that is called disturbed: nothing that was counted says so."""
    position = 4
    change(folder, lambda body: body["runs"][position]["load"].update(others_cpu_s=9.0))

    code, said = verified(folder, capsys)

    assert code == 1
    assert "runs/004/load.json: others_cpu_s: 0.5 → 9.0" in said
    assert "results.json: runs.4.load.others_cpu_s: 9 → 0.5 (computed a second way)" in said


def test_a_load_whose_file_is_gone_or_that_nobody_can_compute_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file beside the records of the run; an older load, which kept nothing to compute from."""
    (folder / "runs/003/load.json").unlink()
    gone = check_report(folder).differences
    shutil.rmtree(folder / "runs/003")

    def older(body: Body) -> None:
        for run in body["runs"]:
            del run["load"]["machines"], run["previous"]

    change(folder, older)
    for file in folder.glob("runs/*/load.json"):
        file.unlink()

    code, said = verified(folder, capsys)

    assert [(one.file, one.found) for one in gone] == [("runs/003/load.json", "nothing")]
    assert code == 0
    assert "note: What the load of 12 of 12 runs was computed from was not kept" in said
