"""samples.csv: every raw sample once, and enough to compute every rate again."""

import io

import pandas as pd
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


def table(comparison: Comparison) -> pd.DataFrame:
    """The file as pandas reads it."""
    stream = io.BytesIO()
    samples_into(stream, comparison)
    return pd.read_csv(io.BytesIO(stream.getvalue()))


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

    assert tuple(rows.columns) == SAMPLE_COLUMNS
    assert rows["step_end_s"].tolist() == ends
    assert rows["position"].is_monotonic_increasing


def test_throughput_follows_from_the_file_alone() -> None:
    """Examples ÷ the slowest process's seconds, over the epochs that are counted."""
    rows = table(small())
    run = next(run for run in small().runs if run.arm == "horovod ×2")
    counted = rows[(rows["position"] == run.position) & (rows["counted"] == "yes")]
    epochs = counted.groupby("epoch").agg({"epoch_examples": "first", "epoch_train_s": "max"})

    rate = epochs["epoch_examples"].sum() / epochs["epoch_train_s"].sum()

    slowest = [
        max(one.epochs[k].train_s for one in run.records)
        for k in range(1, len(run.records[0].epochs))
    ]
    assert epochs.index.tolist() == [1, 2, 3]
    assert rate == pytest.approx(3 * EXAMPLES / sum(slowest), rel=1e-12)


def test_executions_of_several_steps_and_lost_runs() -> None:
    """The last execution may be shorter; of a failed run, what it recorded is there."""
    spec = spec_of("serial", steps_per_execution=4)
    made = epoch(2.0, step_end_s=[0.5, 1.0, 1.75], steps=10, steps_per_time=4)
    failed = Outcome(kind="failed", reason="power cut")
    arm = arm_of("serial")
    run = run_of(arm, [record(spec, [made], outcome=failed)], outcome=failed)

    rows = table(comparison_of([arm], [run]))

    assert rows["steps"].tolist() == [4, 4, 2]
    assert rows["duration_s"].tolist() == [0.5, 0.5, 0.75]
    assert rows["execution"].tolist() == [0, 1, 2]
    assert set(rows["counted"]) == {"no"}


def test_trials_are_samples_too() -> None:
    """They come first and differ from the runs."""
    arm = arm_of("serial")
    run = run_of(arm, [record(spec_of("serial"), [epoch(1.0)])])
    comparison = comparison_of([arm], [run], trials=[Trial(arm=arm, tuned_from="serial", run=run)])

    kinds = table(comparison)["kind"].tolist()

    assert kinds == ["trial", "trial", "run", "run"]


def test_of_a_live_run_what_counts_is_what_its_throughput_is_made_of() -> None:
    """Not the beginning of a block, and not the warm-up; the slowest process has the time."""
    run = live_run(prefetch=2)

    rows = table(comparison_of([arm_of("horovod", 2)], [run]))
    counted = rows[rows["counted"] == "yes"]
    updates = counted.groupby("task")["duration_s"].count()
    seconds = counted.groupby(["epoch", "task"])["duration_s"].sum().groupby("epoch").max().sum()

    assert updates.tolist() == [10 - 6 + 40 - 6] * 2
    assert 3 * updates.max() / seconds == pytest.approx(throughput_examples_s(run).value)


def test_a_label_cannot_break_a_row() -> None:
    """Quotes, commas and line ends stay inside their field."""
    arm = arm_of("serial").replace(label='a,"b"\nc')
    run = run_of(arm, [record(spec_of("serial"), [epoch(1.0)])])

    assert set(table(comparison_of([arm], [run]))["arm"]) == {'a,"b"\nc'}
