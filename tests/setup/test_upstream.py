"""docs/upstream.md and scripts/upstream tell of the same traps."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "upstream"
PAGE = (ROOT / "docs" / "upstream.md").read_text(encoding="utf-8")
LIMIT_S = 240


def shown(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """`python scripts/upstream …`."""
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def test_the_page_and_the_command_have_the_same_names() -> None:
    """A trap of one is in the other."""
    listed = {line.split()[0] for line in shown().stdout.splitlines()}
    told = set(re.findall(r"python scripts/upstream ([a-z0-9-]+)", PAGE))

    assert listed
    assert told == listed


def test_tests_that_the_page_names_are_there() -> None:
    """By file and name, as pytest takes them."""
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)

    assert named
    for path, name in named:
        body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
        assert name in {one.name for one in body if isinstance(one, ast.FunctionDef)}, (path, name)


def test_the_index_leads_to_every_section() -> None:
    """Somebody looks for an error there first."""
    index = PAGE.partition("\n## ")[0]
    sections = re.findall(r"^### (.*)$", PAGE, re.MULTILINE)

    assert sections
    assert re.findall(r"^- \[(.*)\]\(#[^)]*\)$", index, re.MULTILINE) == sections


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


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize(
    "name",
    ["horovod-hostfile-comment", "keras2-momentum-is-float32", "keras3-central-storage-metrics"],
)
def test_a_trap_is_seen(name: str) -> None:
    """The cheapest of those without a strategy, of a strategy and of a launcher."""
    done = shown(name)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("seen: ")
