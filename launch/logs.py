"""The output of every task: its log file, its last lines, and all logs shown live."""

import sys
from pathlib import Path
from typing import TextIO

# Enough for the end of a traceback; a log may have gigabytes.
TAIL_BYTES = 64 * 1024


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
                stream.seek(start)
                new = stream.read()
            end = len(new) if rest else new.rfind(b"\n") + 1
            self._read[file] = start + end
            for line in new[:end].decode(errors="replace").splitlines():
                self._stream.write(f"[{file.stem}] {line}\n")
        self._stream.flush()
