"""Ctrl-C, kill and a full disk: one message, what to type next, and nothing is left running."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ringside.cli.compare
import ringside.cli.main
from tests.unit.compare.made import comparison_of

LIMIT_S = 60
ROOT = Path(ringside.cli.main.__file__).resolve().parents[2]
# A command that says which folder it has made, and waits.
WAITS = """
import signal, tempfile

def command() -> None:
    "Wait."
    with tempfile.TemporaryDirectory() as folder:
        print(folder, flush=True)
        signal.pause()
"""
MAIN = """
import sys, waits
from ringside.cli import main
sys.modules["ringside.cli.doctor"] = waits
main.main()
"""
ASKS = """
import subprocess
from ringside_core.die_with_parent import dying_with_parent
subprocess.run(dying_with_parent("waits_for_ever"))
"""
WAITS_FOR_EVER = "import signal; print('ready', flush=True); signal.pause()"


def started(folder: Path, code: str, *words: str) -> subprocess.Popen[str]:
    """Python with modules of a folder, and with ours."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])},
    )


@pytest.mark.usefixtures("signals_heard")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_leaves_every_with(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """Also outside of a run: the temporary folder is removed, and one line says so."""
    (tmp_path / "waits.py").write_text(WAITS)
    process = started(tmp_path, MAIN, "doctor")
    try:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        assert folder.is_dir()
        process.send_signal(number)
        _, said = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
        process.communicate()

    assert process.returncode == code
    assert said == f"ringside: {ringside.cli.main.STOPPED}\n"
    assert not folder.exists()


def test_the_probe_ends_with_its_parent_even_if_killed(tmp_path: Path) -> None:
    """The end of its output shows that it ended."""
    (tmp_path / "waits_for_ever.py").write_text(WAITS_FOR_EVER)
    process = started(tmp_path, ASKS)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"

    process.kill()

    process.communicate(timeout=LIMIT_S)  # comes back when no process holds the pipe any more


def raising(error: BaseException) -> Callable[..., Any]:
    """A function that does."""

    def function(*_: object, **__: object) -> None:
        raise error

    return function


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143), OSError(28, "full", "f")])
@pytest.mark.parametrize(
    ("stage", "next_line"),
    [
        ("begin", "nothing was measured yet: give the same command again"),
        ("go_on", "go on with: ringside compare --resume {folder}"),
        ("_report", "write the report with: ringside report {folder}"),
    ],
)
def test_a_stopped_command_says_how_to_go_on(
    stage: str,
    next_line: str,
    error: BaseException,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line at every stage of a comparison; files that cannot be written are named."""
    comparison = comparison_of("mirrored")
    monkeypatch.setattr(ringside.cli.compare, "begin", lambda *_, **__: comparison)
    monkeypatch.setattr(ringside.cli.compare, "go_on", lambda *_, **__: comparison)
    monkeypatch.setattr(ringside.cli.compare, stage, raising(error))

    code = ringside.cli.main.run(["compare", "--name", "bout", "--output", str(tmp_path)])

    said = capsys.readouterr()
    (line,) = said.out.splitlines()
    stopped = not isinstance(error, OSError)
    assert line.endswith(next_line.format(folder=tmp_path / "bout"))
    assert line.startswith("stopped; ") == stopped
    assert said.err == ("" if stopped else "ringside: f: full\n")
    expected = {KeyboardInterrupt: 130, SystemExit: 143, OSError: 2}
    assert code == expected[type(error)]
