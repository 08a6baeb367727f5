"""Logs do not grow without a bound: the beginning and the end are kept."""

import io
import os
from pathlib import Path

import pytest

from launch import logs
from launch.logs import Follower, LogLimit


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a task of a run whose logs have at most 1,000 bytes, and are looked at each time."""
    monkeypatch.setattr(logs, "MOST_BYTES", 1000)
    monkeypatch.setattr(logs, "KEPT_BYTES", 100)
    monkeypatch.setattr(logs, "LOOK_S", 0.0)
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs" / "rank-0.log"


def lines(first: int, last: int) -> str:
    """Numbered lines of ten bytes."""
    return "".join(f"line {number:04d}\n" for number in range(first, last))


def test_a_long_log_loses_its_middle(log: Path, tmp_path: Path) -> None:
    """Twice; what is written meanwhile stands behind it, and how much is left out is exact."""
    limit = LogLimit(tmp_path)
    writer = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(writer, lines(0, 100).encode())
    limit.keep()
    whole = log.read_text()
    os.write(writer, lines(100, 150).encode())
    limit.keep()
    once = log.read_text()
    os.write(writer, lines(150, 250).encode())
    limit.keep()
    os.write(writer, lines(250, 251).encode())
    os.close(writer)

    assert whole == lines(0, 100)
    assert once == lines(0, 10) + "[1,300 bytes are left out here]\n" + lines(140, 150)
    text = lines(0, 10) + "[2,300 bytes are left out here]\n" + lines(240, 251)
    assert log.read_text() == text


def test_a_log_that_is_followed_goes_on_after_a_cut(log: Path, tmp_path: Path) -> None:
    """What comes after the cut is shown, once."""
    shown = io.StringIO()
    follower = Follower(tmp_path, shown)
    log.write_text(lines(0, 150))
    follower.copy()
    LogLimit(tmp_path).keep()
    follower.copy()
    with log.open("a") as stream:
        stream.write(lines(150, 151))
    follower.copy()

    assert shown.getvalue().count("line 0149") == shown.getvalue().count("line 0150") == 1
