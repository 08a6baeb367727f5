"""Runs that did not complete, with the last lines of their output."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from ringside.report.blocks import Block, Heading, Output, Section, Text
from ringside.report.words import outcome_of
from ringside_core.specs import Comparison, Run
from ringside_core.text import plain, plural

TAIL_LINES = 12
TAIL_BYTES = 16_384
MAX_LOGS = 8


def link_to(folder: Path | None, relative: str) -> str:
    """A relative link to something that is there, inside the folder; else empty."""
    path = _inside(folder, relative)
    return "" if path is None or not path.exists() else quote(relative.rstrip("/"))


def _inside(folder: Path | None, relative: str) -> Path | None:
    """The path if it is inside the folder; a record must not make a page read /etc."""
    if folder is None or not relative:
        return None
    path = (folder / relative).resolve()
    return path if path.is_relative_to(folder.resolve()) else None


def _last_lines(run: Run, folder: Path | None) -> list[tuple[str, str]]:
    """The lines that the launcher took for the cause, then tracebacks; without both, the logs."""
    parts = [("the process that explains it", tail("\n".join(run.last_lines)))]
    parts += [(record.task, tail(record.outcome.traceback)) for record in run.records]
    parts = [(task, lines) for task, lines in parts if lines]
    if not parts and run.outcome.traceback:
        parts = [("run", tail(run.outcome.traceback))]
    log_dir = _inside(folder, run.log_dir)
    if parts or log_dir is None or not log_dir.is_dir():
        return parts
    files = sorted(path for path in log_dir.rglob("*.log") if path.is_file())
    tails = [(path.stem, _file_tail(path)) for path in files[:MAX_LOGS] if not path.is_symlink()]
    return [(name, text) for name, text in tails if text]


def _file_tail(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - TAIL_BYTES))
            return tail(stream.read().decode(errors="replace"))
    except OSError:
        return ""


def tail(text: str) -> str:
    """The last lines, without escape sequences."""
    lines: Sequence[str] = plain(text).strip().splitlines()
    return "\n".join(line.rstrip() for line in lines[-TAIL_LINES:])


def failures_section(comparison: Comparison, folder: Path | None) -> Iterator[Section]:
    """Runs that did not complete, as they were started, with their last lines; if there are any."""
    runs = sorted(comparison.runs, key=lambda run: run.position)
    lost = [run for run in runs if not run.outcome.completed]
    if not lost:
        return
    blocks: list[Block] = []
    for run in lost:
        blocks += [Heading(f"{run.arm}, {run.stage}"), Text(outcome_of(run.outcome))]
        lines, link = tuple(_last_lines(run, folder)), link_to(folder, run.log_dir)
        if lines or link:
            blocks.append(Output(lines, link))
    answer = f"{plural(len(lost), 'run')} did not complete."
    yield Section("failures", "What went wrong?", "Failures", answer, tuple(blocks), sure=False)
