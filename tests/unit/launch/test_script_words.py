"""A script instead of a workload: how it is named on the command line, without TensorFlow."""

import json
from pathlib import Path
from typing import Any

import pytest

from launch.flags import spec_from_flags
from ringside_core.specs import RefusalError, Surroundings
from ringside_core.workloads import registry
from ringside_core.workloads.registry import own_file, script_words


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A script in the working folder, which asks for batches of 6 and 4 epochs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("")

    def answer(name: str, request: str) -> dict[str, int]:
        return {"global_batch": 6 * json.loads(request)["fit"], "epochs": 4}

    monkeypatch.setattr(registry, "_answer", answer)
    return "mine.py"


def spec(*words: str, **flags: Any) -> Any:
    """What these words and flags make."""
    return spec_from_flags(Surroundings(), script=list(words), **flags)


def test_a_script_says_batch_and_epochs_unless_flags_do(script: str) -> None:
    """Its own arguments are part of its name, with their quotes."""
    found = spec(script, "--title", "two words", epochs=9)

    assert found.workload == "mine.py --title 'two words'"
    assert script_words(found.workload) == ["mine.py", "--title", "two words"]
    assert (found.global_batch, found.epochs) == (6, 9)
    assert found.run_name.startswith("mine-py---title-two-words--serial-1r-")


def test_a_later_fit_says_its_own(script: str) -> None:
    """`-w fit=2`, which is part of the workload."""
    found = spec(script, workload_option=["fit=2"], save="record")

    assert (found.global_batch, found.workload_options) == (12, {"fit": 2})


@pytest.mark.parametrize("option", ["fit=0", "fit=two", "fit=true", "lr=3"])
def test_a_script_has_no_other_option(script: str, option: str) -> None:
    """Nor a fit before the first one."""
    with pytest.raises(RefusalError, match="which of its fits is meant, from 1"):
        spec(script, workload_option=[option], save="record")


def test_words_name_any_workload(script: str) -> None:
    """A function, or one of Ringside's."""
    assert spec("mine.py:workload").workload == "mine.py:workload"
    assert spec("digits").workload == "digits"


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("mine.py --url http://a:1", "mine.py"),
        ("a folder/mine.py:workload", "a folder/mine.py"),
        ("mine.py", "mine.py"),
        ("package.module:workload", None),
        ("digits", None),
    ],
)
def test_the_file_of_a_workload(name: str, file: str | None) -> None:
    """It must be on every host."""
    assert own_file(name) == file


@pytest.mark.parametrize(
    ("words", "flags", "refusal"),
    [
        (("mine.py",), {"workload": "digits"}, "one workload"),
        (("mine.py:workload", "--rate"), {}, "Only a script has arguments"),
        (("absent.py",), {}, "must exist.*absent.py"),
        (("digit",), {}, "Did you mean 'digits'"),
    ],
)
def test_words_that_are_refused(
    script: str, words: tuple[str, ...], flags: dict[str, str], refusal: str
) -> None:
    """Each by one message."""
    with pytest.raises(RefusalError, match=refusal):
        spec(*words, **flags)
