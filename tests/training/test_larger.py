"""Every program of examples/larger trains what plain TensorFlow trains serially."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nightly import nightly

LARGER = Path(__file__).resolve().parents[2] / "examples" / "larger"
WITHIN_S = 400
pytestmark = pytest.mark.timeout(WITHIN_S + 60)


def run(file: str, *options: str) -> subprocess.CompletedProcess[str]:
    """One program to its end, within a time; that of Horovod as four ranks."""
    ranks = ("mpirun", "-np", "4", "--oversubscribe") if file == "process_sets.py" else ()
    command = [*ranks, sys.executable, str(LARGER / file), *options]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=WITHIN_S, env=environment, check=False
    )


@pytest.mark.parametrize(
    ("file", "options"),
    [
        ("two_devices.py", ()),
        nightly("dtensor_mesh.py", ()),
        nightly("dtensor_mesh.py", ("--processes", "2")),
        nightly("servers.py", ()),
        *(nightly("process_sets.py", ("--parts", parts)) for parts in "124"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value) or None,
)
def test_a_larger_model_is_the_serial_one(file: str, options: tuple[str, ...]) -> None:
    """All weights, to rounding; the program compares them itself."""
    ended = run(file, *options)

    assert ended.returncode == 0, ended.stderr
    assert "same as serial: largest deviation" in ended.stdout.replace("NOT the same", "")


@pytest.mark.nightly
def test_a_table_that_does_not_fit_one_server_is_refused_there() -> None:
    """One line says so, and nothing waits for it."""
    ended = run("servers.py", "--servers", "1")

    assert ended.returncode == 1, ended.stderr
    assert "256 MiB do not fit a server" in ended.stdout
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("file", "options", "rule"),
    [
        ("two_devices.py", ("--micro-batches", "5"), "micro-batches divide the batch"),
        nightly("dtensor_mesh.py", ("--mesh", "3x2"), "data divides the batch"),
        nightly("servers.py", ("--shard-bytes", "100"), "at least one row"),
        nightly("process_sets.py", ("--parts", "3"), "parts divide the ranks"),
    ],
)
def test_bad_input_is_one_line(file: str, options: tuple[str, ...], rule: str) -> None:
    """The rule, what came, and what would fit."""
    ended = run(file, *options)

    (line,) = {one for one in ended.stderr.splitlines() if ".py: error: " in one}
    assert ended.returncode == 2, ended.stderr
    assert rule in line
    assert options[1] in line
    assert "fits: " in line
    assert "Traceback" not in ended.stderr
