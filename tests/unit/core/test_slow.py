"""A process that gets a part of its speed: it is stopped again and again, and always goes on."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.site import ROOT

BUSY = "while True: pass"


@pytest.fixture(name="busy")
def busy_() -> Iterator[subprocess.Popen[bytes]]:
    """A process that computes."""
    with subprocess.Popen([sys.executable, "-c", BUSY]) as process:
        yield process
        process.kill()


def states(pid: int, wanted: set[str], limit_s: float = 30.0) -> set[str]:
    """States of the process, as /proc names them, until all of these were seen."""
    seen, end = set[str](), time.monotonic() + limit_s
    while not wanted <= seen and time.monotonic() < end:
        seen.add(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0])
        time.sleep(0.001)
    return seen


def slow(pid: int, part: str) -> subprocess.Popen[bytes]:
    """Slow it."""
    return subprocess.Popen([sys.executable, "-m", "ringside_core.slow", str(pid), part], cwd=ROOT)


def test_it_is_stopped_and_goes_on(busy: subprocess.Popen[bytes]) -> None:
    """And when it is slowed no longer, it is not left stopped, wherever the end comes."""
    for _ in range(5):
        slowing = slow(busy.pid, "0.33")
        assert {"T", "R"} <= states(busy.pid, {"T", "R"})
        slowing.terminate()
        assert slowing.wait(10) == 0
        assert "R" in states(busy.pid, {"R"})
        assert "T" not in states(busy.pid, {"never"}, limit_s=0.1)


def test_it_ends_with_what_it_slows(busy: subprocess.Popen[bytes]) -> None:
    """There is nothing to stop."""
    slowing = slow(busy.pid, "0.5")
    states(busy.pid, {"T"})
    os.kill(busy.pid, signal.SIGKILL)
    busy.wait(10)
    assert slowing.wait(10)


def test_time_in_which_both_are_frozen_does_not_count(busy: subprocess.Popen[bytes]) -> None:
    """Else it would be stopped for as long behind each turn of the other runs."""
    slowing = slow(busy.pid, "0.5")
    assert "T" in states(busy.pid, {"T"})
    for _ in range(8):
        for pid in (busy.pid, slowing.pid):
            os.kill(pid, signal.SIGSTOP)
        time.sleep(0.7)
        for pid in (busy.pid, slowing.pid):
            os.kill(pid, signal.SIGCONT)
        time.sleep(0.1)  # where it was meant to be stopped, that is over
        assert "R" in states(busy.pid, {"R"}, limit_s=0.3)
    slowing.terminate()
    assert slowing.wait(10) == 0
