"""docs/upstream.md and scripts/upstream have the same traps."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "upstream"
LIMIT_S = 240


def shown(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """`python scripts/upstream …`."""
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def test_the_page_and_the_command_have_the_same_names() -> None:
    """A name in the last column of the page's tables is one that the command lists."""
    page = (ROOT / "docs" / "upstream.md").read_text(encoding="utf-8")
    listed = [line.split()[0] for line in shown().stdout.splitlines()]

    assert listed
    assert sorted(re.findall(r"\| `([a-z0-9-]+)` \|$", page, re.MULTILINE)) == sorted(listed)


def test_nothing_of_ringside_is_imported() -> None:
    """It shows upstream as shipped."""
    for file in SCRIPT.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            own = ("ringside", "ringside_core", "backends", "trainers", "launch", "train")
            assert not {name.partition(".")[0] for name in names} & set(own), file


def test_an_unknown_name_is_refused() -> None:
    """One message, exit code 2."""
    done = shown("no-such-trap")

    assert done.returncode == 2
    assert "Received: no-such-trap" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.nightly
@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize("name", ["horovod-hostfile-comment", "keras3-assign-add-reads-and-writes"])
def test_a_trap_is_seen(name: str) -> None:
    """The cheapest of a launcher and of a strategy."""
    done = shown(name)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("seen: ")
