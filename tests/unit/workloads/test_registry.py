"""Functions that a person names: what is missing is said."""

import sys
from pathlib import Path

import pytest

from ringside_core.specs import RefusalError
from ringside_core.workloads.registry import load_function


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("nowhere.py:odd", "The workload's file must exist"),
        ("nowhere.at_all:odd", "The workload's module must be importable"),
    ],
)
def test_what_is_missing_is_named(reference: str, words: str) -> None:
    """A file, or a module."""
    with pytest.raises(RefusalError, match=words):
        load_function(reference)


@pytest.fixture(autouse=True)
def unchanged_search_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading a user's file changes where Python looks."""
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.mark.parametrize("reference", ["file", "module"])
def test_an_import_that_fails_is_named_with_its_line(
    reference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the user's own file."""
    monkeypatch.chdir(tmp_path)
    name = f"specs_of_mine_{reference}"
    (tmp_path / f"{name}.py").write_text("import os\nimport not_installed\n")
    location = {"file": f"{name}.py", "module": name}[reference]

    with pytest.raises(RefusalError, match="must import without an error") as refused:
        load_function(f"{location}:workload")

    assert f"{name}.py, line 2" in str(refused.value)
