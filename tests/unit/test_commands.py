"""Every command that README, docs/ and the help show can be typed as it stands."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from ringside.cli.main import COMMANDS, build_app
from ringside.comparison.arms import parse_arms

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHOWN = re.compile(r"(?:[\w./=-]+ )*?((?:ringside|make|python|pytest) [^ ].*)")
READERS = re.compile(r"my_script\.py|runs/")  # a reader's own


def shown() -> Iterator[tuple[str, str]]:
    """(page, command) of what is indented or stands in backticks; and of each example in a help."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        for found in re.finditer(r"^ {4}(.+)$|`([^`\n]+)`", text, re.MULTILINE):
            line = (found[1] or found[2]).partition(" #")[0]
            for part in re.split(r" && | > ", line):
                if match := SHOWN.match(part):
                    yield page.name, match[1].strip()
    for name in COMMANDS:
        module = ROOT / "ringside" / "cli" / f"{name.replace('-', '_')}.py"
        for example in re.findall(r"^ +Example: (ringside .+)$", module.read_text(), re.MULTILINE):
            yield module.name, example


@pytest.mark.parametrize(("page", "command"), sorted(set(shown())))
def test_a_command_can_be_typed(page: str, command: str) -> None:
    """Its flags are parsed, its arms are known, its target, file or tests exist; it is not run."""
    program, first, *rest = shlex.split(command)
    if program == "make":
        assert re.search(rf"^{first}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif program != "ringside":
        names = [word for word in (first, *rest) if re.search(r"/|\.py$", word)]
        assert all((ROOT / name).exists() for name in names if not READERS.match(name))
    elif first not in ("…", "--help", "--install-completion"):
        loaded = get_command(build_app([first]))
        assert first in COMMANDS, page
        if rest:  # else it is only named
            context = loaded.commands[first].make_context(first, rest)  # type: ignore[attr-defined]
            if backends := context.params.get("backends"):
                parse_arms(backends, "2")


def test_the_pages_show_commands() -> None:
    """That the test above sees them."""
    pages = {page for page, _ in shown()}
    assert {"README.md", "compare.md", "drill.py", "0009-rows.md"} <= pages
    assert ("README.md", "ringside drill") in set(shown())
