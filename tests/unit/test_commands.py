"""Every command that README, docs/ and the help show can be typed as it stands."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from ringside.cli.main import COMMANDS, build_app, run
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


def fill(folder: Path) -> None:
    """A folder in which a reader would type: a script, a file of hosts, what the checkout has."""
    for name in ("examples", "hostfiles", "tests", "benchmarks", "scripts", "train.py"):
        (folder / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "examples" / "script.py", folder / "my_script.py")
    (folder / "my_hosts").write_text("a slots=4\nb slots=4\nc slots=4\nd slots=4\n")


def asked_of(*names: str) -> Iterator[tuple[str, list[str]]]:
    """(command, its words) of these commands of Ringside; of some a bare name is only named."""
    for command in sorted({command for _, command in shown()}):
        program, *words = shlex.split(command)
        named = len(words) == 1 and words[0] in ("kubernetes", "report", "verify-report")
        if program == "ringside" and words[0] in names and not named and "…" not in command:
            yield command, words


PLANS = [
    pytest.param(words, id=command, marks=[pytest.mark.slow] if ".py" in command else [])
    for command, words in asked_of("compare", "launch", "kubernetes")
    if "--resume runs/" not in command
]


@pytest.mark.parametrize("words", PLANS)
def test_a_plan_is_made(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As it is typed, but nothing is started. A script imports TensorFlow, and is slow."""
    fill(tmp_path)
    monkeypatch.chdir(tmp_path)
    place = words.index("--") if "--" in words else len(words)
    dry = [] if words[0] == "kubernetes" else ["--dry-run"]

    assert run([*words[:place], *dry, *words[place:]]) == 0, capsys.readouterr()

    assert capsys.readouterr().out
    assert not (tmp_path / "runs").exists()


# Of hosts, Slurm and TPUs: tests/cluster and tests/training/test_tpu.py run those. Of a comparison
# that was stopped, which needs no --budget: tests/parallel/test_compare.py.
RUN_HERE = [
    command
    for name in ("check", "doctor", "verify", "trace", "allreduce", "input", "drill", "report",
                 "verify-report", "compare")
    for command, _ in asked_of(name)
    if not re.search("host|tpu", command)
    and (name != "compare" or re.search("--resume .*--budget", command))
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reader's folder in which a comparison was made, under each of the names that are shown."""
    found = tmp_path_factory.mktemp("reader")
    fill(found)
    runs = found / "runs"
    made = "ringside compare my_script.py --backends mirrored,horovod --replicas 2 --budget 4m"
    ended = typed(f"{made} --name mine", found)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    for name in ("<name>", "<other>", "a", "b", "before", "now", "first"):
        shutil.copytree(runs / "mine", runs / name)
    return found


def typed(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, in a shell with an activated .venv."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        shlex.split(command), cwd=folder, env={**os.environ, "PATH": path}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip


@pytest.mark.nightly
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("command", RUN_HERE, ids=RUN_HERE)
def test_a_command_runs(command: str, folder: Path) -> None:
    """As it is typed, to its end."""
    ended = typed(command, folder)

    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    assert ended.stdout
