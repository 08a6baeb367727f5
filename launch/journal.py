"""What a process knows of its run, on disk before it ends: for one that is killed, or a full disk.

Epochs are appended as they happen. Space for the record is taken at the beginning.
"""

import contextlib
import os
from pathlib import Path

from pydantic import ValidationError

from ringside_core.readings.machine import machine_facts
from ringside_core.specs import (
    EpochRecord,
    Outcome,
    RecordInProgress,
    RefusalError,
    RunRecord,
    is_full,
    write_whole,
)
from ringside_core.specs.files import HALF

ATTEMPTS = "attempts"  # in the folder of a run
# Room for a record of some thousand steps, or for one without its epochs.
RESERVED_BYTES = 256 << 10
NOT_ENDED = Outcome(
    kind="failed", error_class="NoRecord", reason="it ended without writing its record"
)


def record_file(run_dir: Path, task: str) -> Path:
    """The record of a task: there once it has ended."""
    return run_dir / "records" / f"{task}.json"


def journal_file(run_dir: Path, task: str) -> Path:
    """Its epochs until then: a line with what was known before them, then a line for each."""
    return run_dir / "records" / f"{task}.jsonl"


def set_record_aside(run_dir: Path, task: str) -> None:
    """Keep what an earlier attempt of this task has left, in `attempts/<number>/records/`."""
    number = 1
    while any((run_dir / ATTEMPTS / str(number) / "records").glob(f"{task}.json*")):
        number += 1
    folder = run_dir / ATTEMPTS / str(number) / "records"
    for file in (record_file(run_dir, task), journal_file(run_dir, task)):
        if file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            file.rename(folder / file.name)


def _reserved_file(run_dir: Path, task: str) -> Path:
    return run_dir / "records" / f".{task}.json{HALF}"


class Journal:
    """Appends the epochs of a record that goes on to a file, and holds space for the record.

    Raises:
        OSError: there is no space.
    """

    def __init__(self, record: RecordInProgress, run_dir: Path) -> None:
        self._record = record
        self._file = journal_file(run_dir, record.task)
        self._kept = self._bytes = 0
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with _reserved_file(run_dir, record.task).open("wb") as reserved:
            os.posix_fallocate(reserved.fileno(), 0, RESERVED_BYTES)

    def keep(self) -> None:
        """Append the epochs that are new, if they fit. Call it when no time is taken."""
        new = self._record.epochs[self._kept :]
        lines = [epoch.model_dump_json() for epoch in new]
        if new and not self._kept:
            self._record.machine = machine_facts()
            begun = self._record.ended(NOT_ENDED).replace(epochs=())
            lines.insert(0, begun.model_dump_json())
        text = "".join(f"{line}\n" for line in lines).encode()
        with contextlib.suppress(OSError), self._file.open("ab") as file:
            file.truncate(self._bytes)  # what did not fit the last time, or is of an earlier run
            file.write(text)
            file.flush()
            self._kept, self._bytes = self._kept + len(new), self._bytes + len(text)


def write_record(record: RunRecord, run_dir: Path) -> Path:
    """Write the record of a process that ends, on a full disk in the space that it holds.

    There it has no epochs if they do not fit; they stay in the journal.
    """
    file, reserved = record_file(run_dir, record.task), _reserved_file(run_dir, record.task)
    text = record.to_json()
    try:
        write_whole(file, text)
    except OSError as error:
        if not (is_full(error) and reserved.exists()):
            raise
        if too_long := len(text.encode()) > RESERVED_BYTES:
            outcome = record.outcome
            if outcome.completed:
                reason = f"the record does not fit on the disk: {error}"
                outcome = Outcome(kind="failed", error_class="OSError", reason=reason)
            text = record.replace(epochs=(), outcome=outcome.replace(traceback="")).to_json()
        with reserved.open("r+b") as space:
            space.write(text.encode())
            space.truncate()
        reserved.replace(file)
        if too_long:
            return file
    journal_file(run_dir, record.task).unlink(missing_ok=True)
    reserved.unlink(missing_ok=True)
    return file


def finish(run_dir: Path, task: str, run_id: str, record: RunRecord | None) -> RunRecord | None:
    """Make the journal of a task that has ended its record; None: it has left neither.

    Args:
        run_dir: folder of the run.
        task: that has ended.
        run_id: of the run; the journal of another one is left alone.
        record: that it has written itself; it may lack the epochs, see `write_record`.
    """
    if record is not None and record.epochs:
        return record
    try:
        text = journal_file(run_dir, task).read_text(encoding="utf-8")
        first, *lines = text[: text.rfind("\n") + 1].splitlines()  # the last may be half a line
        begun = RunRecord.model_validate_json(first)
        epochs = tuple(map(EpochRecord.model_validate_json, lines))
    except (OSError, ValueError, ValidationError, RefusalError):
        return record
    if begun.run_id != run_id:
        return record
    record = (record or begun).replace(epochs=epochs)
    with contextlib.suppress(OSError):
        write_whole(record_file(run_dir, task), record.to_json())
        journal_file(run_dir, task).unlink()
    return record
