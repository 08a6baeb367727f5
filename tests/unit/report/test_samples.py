"""samples.csv: every raw sample once, and enough to compute every rate again."""

import csv
import io
from collections import defaultdict

import pytest

from ringside.report.data import SAMPLE_COLUMNS, samples_into
from ringside.stats.run_figures import throughput_examples_s
from ringside_core.specs import Comparison
from tests.unit.report.small import EXAMPLES, small
from tests.unit.stats.factory import arm_of, comparison_of, live_run


def table(comparison: Comparison) -> list[dict[str, str]]:
    """The rows of the file."""
    stream = io.BytesIO()
    samples_into(stream, comparison)
    return list(csv.DictReader(io.StringIO(stream.getvalue().decode(), newline="")))


def column(rows: list[dict[str, str]], name: str) -> list[float]:
    """The numbers of a column."""
    return [float(row[name]) for row in rows]


def test_every_step_of_every_process_is_a_row() -> None:
    """One row for each time in the records, in the order of runs, exact to the last bit."""
    rows = table(small())
    runs = sorted(small().runs, key=lambda run: run.position)
    ends = [
        end
        for run in runs
        for one in run.records
        for epoch_ in one.epochs
        for end in epoch_.step_end_s
    ]

    assert tuple(rows[0]) == SAMPLE_COLUMNS
    assert column(rows, "step_end_s") == ends
    assert column(rows, "position") == sorted(column(rows, "position"))


def test_throughput_follows_from_the_file_alone() -> None:
    """Examples ÷ the slowest process's seconds, over the epochs that are counted."""
    rows = table(small())
    run = next(run for run in small().runs if run.arm == "horovod ×2")
    examples: dict[str, float] = {}
    seconds: defaultdict[str, float] = defaultdict(float)
    for row in rows:
        if row["position"] == str(run.position) and row["counted"] == "yes":
            examples.setdefault(row["epoch"], float(row["epoch_examples"]))
            seconds[row["epoch"]] = max(seconds[row["epoch"]], float(row["epoch_train_s"]))

    rate = sum(examples.values()) / sum(seconds.values())

    slowest = [
        max(one.epochs[k].train_s for one in run.records)
        for k in range(1, len(run.records[0].epochs))
    ]
    assert list(examples) == ["1", "2", "3"]
    assert rate == pytest.approx(3 * EXAMPLES / sum(slowest), rel=1e-12)


def test_of_a_live_run_what_counts_is_what_its_throughput_is_made_of() -> None:
    """Not the beginning of a block, nor what comes before the first; the slowest has the time."""
    run = live_run()

    rows = table(comparison_of([arm_of("horovod", 2)], [run]))
    updates: defaultdict[str, int] = defaultdict(int)
    seconds: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for row in rows:
        if row["counted"] == "yes":
            updates[row["task"]] += 1
            seconds[row["epoch"]][row["task"]] += float(row["duration_s"])
    slowest = sum(max(tasks.values()) for tasks in seconds.values())

    assert [*updates.values()] == [20 - 3 + 10 - 3 + 40 - 3] * 2
    assert 3 * max(updates.values()) / slowest == pytest.approx(throughput_examples_s(run).value)
