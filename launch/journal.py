"""The epochs of a process, on disk as they happen: a process that is killed writes no record."""

import contextlib
from pathlib import Path

from pydantic import ValidationError

from ringside_core.readings.machine import machine_facts
from ringside_core.specs import (
    EpochRecord,
    Outcome,
    RecordInProgress,
    RefusalError,
    RunRecord,
    write_whole,
)

NOT_ENDED = Outcome(
    kind="failed", error_class="NoRecord", reason="it ended without writing its record"
)


def record_file(run_dir: Path, task: str) -> Path:
    """The record of a task: there once it has ended."""
    return run_dir / "records" / f"{task}.json"


def journal_file(run_dir: Path, task: str) -> Path:
    """Its epochs until then: a line with what was known before them, then a line for each."""
    return run_dir / "records" / f"{task}.jsonl"


class Journal:
    """Appends the epochs of a record that goes on to a file."""

    def __init__(self, record: RecordInProgress, run_dir: Path) -> None:
        self._record = record
        self._file = journal_file(run_dir, record.task)
        self._kept = 0

    def keep(self) -> None:
        """Append the epochs that are new. Call it when no time is taken."""
        new = self._record.epochs[self._kept :]
        lines = [epoch.model_dump_json() for epoch in new]
        if new and not self._kept:
            self._record.machine = machine_facts()
            self._file.parent.mkdir(parents=True, exist_ok=True)
            begun = self._record.ended(NOT_ENDED).replace(epochs=())
            lines.insert(0, begun.model_dump_json())
        with self._file.open("a" if self._kept else "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
        self._kept += len(new)


def read_journal(run_dir: Path, task: str) -> RunRecord | None:
    """The record of a task that wrote none, with the epochs of its journal; None: it has none."""
    try:
        text = journal_file(run_dir, task).read_text(encoding="utf-8")
        first, *lines = text[: text.rfind("\n") + 1].splitlines()  # the last may be half a line
        begun = RunRecord.model_validate_json(first)
        return begun.replace(epochs=tuple(map(EpochRecord.model_validate_json, lines)))
    except (OSError, ValueError, ValidationError, RefusalError):
        return None


def finish(run_dir: Path, task: str, run_id: str) -> RunRecord | None:
    """Make the journal of a task that has ended its record; None: it has left no journal."""
    record = read_journal(run_dir, task)
    if record is None or record.run_id != run_id:
        return None
    with contextlib.suppress(OSError):
        write_whole(record_file(run_dir, task), record.to_json())
        journal_file(run_dir, task).unlink()
    return record
