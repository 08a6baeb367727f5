"""--resume: everything from the folder, on the same machine with the same code, or not at all."""

from pathlib import Path
from typing import Any

import pytest

import cli.main
from compare.experiment import keep
from compare.resume import reopened
from measure.machine import machine_facts
from specs import RefusalError, Rounds
from tests.unit.compare.made import comparison_of
from verify import store

UNTIL = Rounds(least=3, most=100, precision=0.05, budget_s=900.0)


def left_behind(folder: Path, **changes: Any) -> Path:
    """A folder of a comparison that was interrupted here and now."""
    fields: dict[str, Any] = {
        "machine": machine_facts(),
        "code_version": store.code_version(),
        "asked": UNTIL,
        "verify": True,
    }
    keep(comparison_of("mirrored").replace(**{**fields, **changes}), folder)
    return folder


def test_it_goes_on_as_asked_for_before(tmp_path: Path) -> None:
    """Nothing is new but what is given anew."""
    left_behind(tmp_path)

    same = reopened(tmp_path, precision=None, budget=None)
    anew = reopened(tmp_path, precision="2%", budget="1h")

    assert same.asked == UNTIL
    assert anew.asked == UNTIL.replace(precision=0.02, budget_s=3600.0)
    assert anew.replace(asked=UNTIL) == same


def test_a_finished_one_says_so(tmp_path: Path) -> None:
    """Unless it is given a budget in which there may be more rounds."""
    left_behind(tmp_path, ended_because="The budget was over.")

    with pytest.raises(RefusalError, match=r"finished.*The budget was over.*--budget"):
        reopened(tmp_path, precision=None, budget=None)

    assert reopened(tmp_path, precision=None, budget="1h").ended_because == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"machine": machine_facts().replace(cpu_model="Abacus 1")}, ["cpu_model", "Abacus 1"]),
        (
            {"machine": machine_facts().replace(packages={"tensorflow": "1.15.0"})},
            ["packages", "it was", "absent"],
        ),
        ({"code_version": "0123456789abcdef" * 4}, ["code", "0123456789ab"]),
        ({"base": None}, ["older version"]),
    ],
)
def test_what_has_changed_is_refused(
    tmp_path: Path, changes: dict[str, Any], words: list[str]
) -> None:
    """With both values."""
    left_behind(tmp_path, **changes)

    with pytest.raises(RefusalError) as refusal:
        reopened(tmp_path, precision=None, budget=None)

    assert all(word in str(refusal.value) for word in words)


def test_no_precision_without_certificates(tmp_path: Path) -> None:
    """As where it is typed the first time."""
    left_behind(tmp_path, verify=False)

    with pytest.raises(RefusalError, match="--no-verify"):
        reopened(tmp_path, precision="2%", budget=None)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--epochs", "1", "--no-verify"], "--verify, --epochs"),
        (["--name", "other"], "Received: --name."),
        ([], "needs the folder of a comparison"),
    ],
)
def test_flags_beside_it_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], words: str
) -> None:
    """By name: all comes from the folder."""
    code = cli.main.run(["compare", "--resume", str(tmp_path), *flags])

    said = " ".join(capsys.readouterr().err.split())
    assert code == 2
    assert words in said
    assert list(tmp_path.iterdir()) == []
