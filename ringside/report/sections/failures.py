"""Runs that did not complete, with the last lines of their output."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from ringside.report.blocks import Block, Heading, Output, Section, Text
from ringside.report.words import outcome_of
from ringside_core.specs import Comparison, Run
from ringside_core.text import plain, plural

TAIL_LINES = 12
TAIL_BYTES = 16_384
MAX_LOGS = 8


@dataclass(frozen=True)
class Failure:
    """One run that did not complete, with (process, its last lines) and a link to its output."""

    arm: str
    stage: str
    outcome: str
    lines: tuple[tuple[str, str], ...]
    link: str


def failures(comparison: Comparison, folder: Path | None) -> list[Failure]:
    """All runs that did not complete, in the order in which they were started."""
    runs = sorted(comparison.runs, key=lambda run: run.position)
    return [
        Failure(
            arm=run.arm,
            stage=run.stage,
            outcome=outcome_of(run.outcome),
            lines=tuple(_last_lines(run, folder)),
            link=link_to(folder, run.log_dir),
        )
        for run in runs
        if not run.outcome.completed
    ]


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
    told = [("the process that explains it", tail("\n".join(run.last_lines)))]
    told += [(record.task, tail(record.outcome.traceback)) for record in run.records]
    told = [(task, lines) for task, lines in told if lines]
    if not told and run.outcome.traceback:
        told = [("run", tail(run.outcome.traceback))]
    log_dir = _inside(folder, run.log_dir)
    if told or log_dir is None or not log_dir.is_dir():
        return told
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


def failures_section(lost: Sequence[Failure]) -> Iterator[Section]:
    """The runs that did not complete, with their last lines; no section if all completed."""
    if not lost:
        return
    blocks: list[Block] = []
    for one in lost:
        blocks += [Heading(f"{one.arm}, {one.stage}"), Text(one.outcome)]
        if one.lines or one.link:
            blocks.append(Output(one.lines, one.link))
    answer = f"{plural(len(lost), 'run')} did not complete."
    yield Section("failures", "What went wrong?", "Failures", answer, tuple(blocks), sure=False)
