"""`ringside verify` as a person types it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ringside_core.specs import Certificate

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.usefixtures("warm_commands")


def test_certificates_are_written_and_failures_end_with_1(tmp_path: Path) -> None:
    """One arm passes, also with several updates in one execution, and one does not.

    A cache that cannot be written costs nothing.
    """
    (tmp_path / "cache").write_text("a file where a folder is expected")

    path = f"{ROOT}{os.pathsep}{os.getenv('PYTHONPATH', '')}"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "ringside.cli.main", "verify"),
            *("--workload", f"{ROOT}/tests/mistakes/programs.py:momentum"),
            *("--backends", "mirrored:steps_per_execution=10,horovod:compression=fp16"),
            *("--global-batch", "8", "--explain", "--name", "mine"),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )

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
