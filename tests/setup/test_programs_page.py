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
    expected = [(p.path.name, p.description, p.interface) for p in programs]
    assert rows == expected
    firsts = [p.path.name for p in programs if p.fit == 1]
    assert firsts == sorted(p.name for p in (ROOT / "examples").glob("*.py"))
    assert [p.fit for p in programs if p.path.stem == "fine_tune"] == [1, 2, 3]
