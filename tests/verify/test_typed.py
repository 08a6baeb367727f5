"""`ringside verify` as a person types it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ringside_core.specs import Certificate

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.usefixtures("warm_commands")


def typed(*words: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `ringside verify` in a folder of its own."""
    return subprocess.run(
        [sys.executable, "-m", "ringside.cli.main", "verify", *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.getenv('PYTHONPATH', '')}", **env},
        capture_output=True,
        text=True,
        check=False,
    )


def test_certificates_are_written_and_failures_end_with_1(tmp_path: Path) -> None:
    """One arm passes, also with several updates in one execution, and one does not.

    A cache that cannot be written costs nothing.
    """
    (tmp_path / "cache").write_text("a file where a folder is expected")

    done = typed(
        "--workload", f"{ROOT}/tests/mistakes/programs.py:momentum",
        "--backends", "mirrored:steps_per_execution=10,horovod:compression=fp16",
        "--global-batch", "8", "--explain", "--name", "mine",
        cwd=tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache"),
    )  # fmt: skip

    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert "2 of 3 arms certified" in done.stdout
    assert "not kept for later commands" in done.stdout
    assert "first above the tolerance" in done.stdout
    folder = tmp_path / "runs" / "mine" / "certificates"
    found = {p.name: Certificate.from_json(p.read_text()).passed for p in folder.iterdir()}
    assert found == {
        "serial-x1.json": True,
        "mirrored-steps_per_execution=10-x2.json": True,
        "horovod-compression=fp16-x2.json": False,
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--steps", "2"), "--steps"),
        (("--backends", "mirored"), "mirrored"),
        (("--workload", "digit"), "digits"),
    ],
)
def test_bad_input_is_told_at_once(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    """The rule, what came, what to do; exit code 2, nothing written."""
    done = typed(*words, cwd=tmp_path)

    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
