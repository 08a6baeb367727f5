"""Every raw sample as one row of CSV: when which step of which process of which run ended."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ringside.stats.step_times import warm_up
from ringside_core.specs import (
    Comparison,
    EpochRecord,
    Run,
    RunRecord,
    whole_file,
)

COLUMNS = (
    "kind",
    "position",
    "round",
    "arm",
    "task",
    "role",
    "epoch",
    "execution",
    "steps",
    "step_end_s",
    "duration_s",
    "counted",
    "epoch_examples",
    "epoch_train_s",
)
Row = tuple[str | int | float, ...]


def write_samples(comparison: Comparison, path: Path) -> None:
    """Write samples.csv, row by row; whole or not at all."""
    with whole_file(path) as stream:
        samples_into(stream, comparison)


def samples_into(stream: BinaryIO, comparison: Comparison) -> None:
    """Write the rows of samples.csv into an open file, one by one: they may be many."""
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(sample_rows(comparison))
    text.detach()  # who opened the stream closes it


def sample_rows(comparison: Comparison) -> Iterator[Row]:
    """The rows: trials first, then the runs in the order in which they were started.

    One row for each entry of `step_end_s`, which is one step, or one execution of several
    (`steps`). Numbers of rounds, epochs and executions count from 0, as in results.json.
    `duration_s` is the time since the end of the one before in the same process; of the first,
    since the barrier before it. `counted` is `no` for warm-up. A process that trained nothing has
    no row.
    """
    for trial in comparison.trials:
        yield from _of_run("trial", trial.run)
    for run in sorted(comparison.runs, key=lambda run: run.position):
        yield from _of_run("run", run)


def _of_run(kind: str, run: Run) -> Iterator[Row]:
    warm = warm_up(run)
    for record in run.records:
        for number in range(len(record.epochs)):
            counted = "yes" if number >= warm.epochs else "no"
            yield from _of_epoch((kind, run.position, run.round, run.arm), record, number, counted)


def _of_epoch(run: Row, record: RunRecord, number: int, counted: str) -> Iterator[Row]:
    epoch = record.epochs[number]
    before = 0.0
    for index, end in enumerate(epoch.step_end_s):
        yield (
            *run,
            record.task,
            record.role,
            number,
            index,
            _steps(epoch, index),
            end,
            end - before,
            counted,
            epoch.examples,
            epoch.train_s,
        )
        before = end


def _steps(epoch: EpochRecord, index: int) -> int:
    """Steps in one execution; the last one of an epoch may be shorter."""
    return min(epoch.steps_per_time, epoch.steps - index * epoch.steps_per_time)
