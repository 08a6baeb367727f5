"""The output of every task: its log file, how long that gets, its last lines, and all logs live."""

import os
import re
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TextIO

# Enough for the end of a traceback; a log may have gigabytes.
TAIL_BYTES = 64 * 1024
# A log that is longer loses its middle: so much is kept of its beginning, and of its end.
MOST_BYTES = 64 * 1024 * 1024
KEPT_BYTES = 1024 * 1024
LOOK_S = 5.0
_LEFT_OUT = re.compile(rb"\[([\d,]+) bytes are left out here\]\n")


def log_file(run_dir: Path, name: str) -> Path:
    """The log file of a task, or of the launcher."""
    return run_dir / "logs" / f"{name}.log"


def tail_text(file: Path) -> str:
    """The end of a file as text; empty if there is none."""
    try:
        with file.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - TAIL_BYTES))
            return stream.read().decode(errors="replace")
    except OSError:
        return ""


def last_lines(run_dir: Path, name: str, count: int) -> tuple[str, ...]:
    """The last lines of a task's output that are not empty."""
    lines = [line.rstrip() for line in tail_text(log_file(run_dir, name)).splitlines()]
    return tuple([line for line in lines if line][-count:])


class LogLimit:
    """Keeps the logs of a run short. Every task must append to its log (O_APPEND).

    A line that is written in the moment of a cut may be lost.
    """

    def __init__(self, run_dir: Path) -> None:
        self._folder = run_dir / "logs"
        self._next = 0.0

    def keep(self) -> None:
        """Cut those that are too long; looks every few seconds, however often it is called."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + LOOK_S
        for file in self._folder.glob("*.log"):
            with suppress(OSError):
                if file.stat().st_size > MOST_BYTES:
                    _cut(file)


def _cut(file: Path) -> None:
    """Take out the middle of a log, and say there how much it was."""
    with file.open("r+b") as stream:
        head = stream.read(KEPT_BYTES)
        head = head[: head.rfind(b"\n") + 1]
        stream.seek(len(head))
        before = _LEFT_OUT.match(stream.readline(100))
        begin = stream.tell() if before else len(head)
        size = stream.seek(0, os.SEEK_END)
        stream.seek(size - KEPT_BYTES)
        tail = stream.read()
        size = stream.tell()
        left_out = size - len(tail) - begin
        if before:
            left_out += int(before[1].replace(b",", b""))
        stream.truncate(len(head))
        said = f"[{left_out:,} bytes are left out here]\n".encode()
    with file.open("ab") as stream:
        stream.write(said + tail)


class Follower:
    """Copies what is added to the log files to the terminal, each line with its task's name."""

    def __init__(self, run_dir: Path, stream: TextIO | None = None) -> None:
        self._folder = run_dir / "logs"
        self._stream = stream or sys.stdout
        self._read: dict[Path, int] = {}

    def copy(self, *, rest: bool = False) -> None:
        """Copy new whole lines; with `rest`, an unfinished last line too."""
        for file in sorted(self._folder.glob("*.log")):
            start = self._read.get(file, 0)
            with file.open("rb") as stream:
                start = min(start, stream.seek(0, os.SEEK_END))  # its middle was cut out
                stream.seek(start)
                new = stream.read()
            end = len(new) if rest else new.rfind(b"\n") + 1
            self._read[file] = start + end
            for line in new[:end].decode(errors="replace").splitlines():
                self._stream.write(f"[{file.stem}] {line}\n")
        self._stream.flush()
