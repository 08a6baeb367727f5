"""samples.csv: every raw sample once, and enough to compute every rate again."""

import csv
import io
from collections import defaultdict

import pytest

from ringside.report.data import SAMPLE_COLUMNS, samples_into
from ringside.stats.run_figures import throughput_examples_s
from ringside_core.specs import Comparison, Outcome, Trial
from tests.unit.report.small import EXAMPLES, small
from tests.unit.stats.factory import (
    arm_of,
    comparison_of,
    epoch,
    live_run,
    record,
    run_of,
    spec_of,
)


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


def test_executions_of_several_steps_and_lost_runs() -> None:
    """The last execution may be shorter; of a failed run, what it recorded is there."""
    spec = spec_of("serial", steps_per_execution=4)
    made = epoch(2.0, step_end_s=[0.5, 1.0, 1.75], steps=10, steps_per_time=4)
    failed = Outcome(kind="failed", reason="power cut")
    arm = arm_of("serial")
    run = run_of(arm, [record(spec, [made], outcome=failed)], outcome=failed)

    rows = table(comparison_of([arm], [run]))

    assert column(rows, "steps") == [4, 4, 2]
    assert column(rows, "duration_s") == [0.5, 0.5, 0.75]
    assert column(rows, "execution") == [0, 1, 2]
    assert {row["counted"] for row in rows} == {"no"}


def test_trials_are_samples_too() -> None:
    """They come first and differ from the runs."""
    arm = arm_of("serial")
    run = run_of(arm, [record(spec_of("serial"), [epoch(1.0)])])
    comparison = comparison_of([arm], [run], trials=[Trial(arm=arm, tuned_from="serial", run=run)])

    kinds = [row["kind"] for row in table(comparison)]

    assert kinds == ["trial", "trial", "run", "run"]


def test_of_a_live_run_what_counts_is_what_its_throughput_is_made_of() -> None:
    """Not the beginning of a block, and not the warm-up; the slowest process has the time."""
    run = live_run()

    rows = table(comparison_of([arm_of("horovod", 2)], [run]))
    updates: defaultdict[str, int] = defaultdict(int)
    seconds: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for row in rows:
        if row["counted"] == "yes":
            updates[row["task"]] += 1
            seconds[row["epoch"]][row["task"]] += float(row["duration_s"])
    slowest = sum(max(tasks.values()) for tasks in seconds.values())

    assert [*updates.values()] == [10 - 6 + 40 - 6] * 2
    assert 3 * max(updates.values()) / slowest == pytest.approx(throughput_examples_s(run).value)


def test_a_label_cannot_break_a_row() -> None:
    """Quotes, commas and line ends stay inside their field."""
    arm = arm_of("serial").replace(label='a,"b"\nc')
    run = run_of(arm, [record(spec_of("serial"), [epoch(1.0)])])

    assert {row["arm"] for row in table(comparison_of([arm], [run]))} == {'a,"b"\nc'}
