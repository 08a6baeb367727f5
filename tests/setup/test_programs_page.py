"""docs/programs.md is of the programs that there are."""

import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.loading import loaded

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", name="command")
def command_() -> ModuleType:
    """scripts/programs.py."""
    return loaded(ROOT / "scripts" / "programs.py")


def test_every_example_has_a_row(command: ModuleType) -> None:
    """A new one, or one that is described otherwise, needs `python scripts/programs.py`."""
    page = (ROOT / "docs" / "programs.md").read_text()
    rows = re.findall(r"^\| \[\w+\]\(\.\./examples/(\w+\.py)\) \| (.*?) \| (.*?) \|", page, re.M)

    programs = command.programs()
    expected = [(one.path.name, one.told, one.changed) for one in programs]
    assert rows == expected
    firsts = [one.path.name for one in programs if one.fit == 1]
    assert firsts == sorted(p.name for p in (ROOT / "examples").glob("*.py"))
    assert [one.fit for one in programs if one.path.stem == "fine_tune"] == [1, 2, 3]
