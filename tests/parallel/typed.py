"""`ringside` as it is typed: in a process of its own, with a cache of its own."""

import os
import subprocess
import sys
from pathlib import Path

import psutil

from ringside_core.specs import Comparison

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 420
FORKS = "RINGSIDE_TESTS_PYTHON"


def ringside(*words: str, output: Path) -> "subprocess.CompletedProcess[str]":
    """A command in the checkout, ended; nothing of earlier tests is used again."""
    return subprocess.run(
        [sys.executable, "-m", "ringside.cli.main", *words],
        cwd=ROOT,
        env={**os.environ, "XDG_CACHE_HOME": str(output / "cache")},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def starting(
    *words: str, cwd: Path = ROOT, env: dict[str, str] | None = None
) -> "subprocess.Popen[str]":
    """A command that goes on, with all that it says in one stream."""
    return subprocess.Popen(
        [sys.executable, "-m", "ringside.cli.main", *words],
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def started(tmp_path: Path, *flags: str, forks: bool = True) -> "subprocess.Popen[str]":
    """`ringside compare` with these flags.

    Args:
        tmp_path: where it is typed; holds its cache too.
        flags: as they are typed.
        forks: tasks may be forks of one process; if not, it is known by its command who is left.
    """
    env = {name: value for name, value in os.environ.items() if name != FORKS or forks}
    env["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    return starting("compare", *flags, cwd=tmp_path, env=env)


def ended(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Exit code and output."""
    try:
        said = process.communicate(timeout=LIMIT_S)[0]
        return process.returncode, said
    finally:
        process.kill()
        process.communicate()


def results(folder: Path) -> Comparison:
    """What a comparison has left."""
    return Comparison.from_json((folder / "results.json").read_text(encoding="utf-8"))


def left_of(folder: Path) -> list[psutil.Process]:
    """Living processes whose command names a folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(str(folder) in word for word in process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found
