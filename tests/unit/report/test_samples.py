"""samples.csv: every raw sample once, and enough to compute every rate again."""

import io
from pathlib import Path

import pandas as pd
import pytest

from ringside.report.samples import COLUMNS, sample_rows, write_samples
from ringside_core.specs import Comparison, Outcome, Trial
from tests.unit.report.small import small
from tests.unit.stats.factory import arm_of, comparison_of, epoch, record, run_of, spec_of


def table(comparison: Comparison, folder: Path) -> pd.DataFrame:
    """The file as pandas reads it."""
    write_samples(comparison, folder / "samples.csv")
    return pd.read_csv(folder / "samples.csv")


def test_every_step_of_every_process_is_a_row(tmp_path: Path) -> None:
    """One row for each time in the records, in the order of runs, exact to the last bit."""
    rows = table(small(), tmp_path)
    runs = sorted(small().runs, key=lambda run: run.position)
    ends = [
        end
        for run in runs
        for one in run.records
        for epoch_ in one.epochs
        for end in epoch_.step_end_s
    ]

    assert tuple(rows.columns) == COLUMNS
    assert rows["step_end_s"].tolist() == ends
    assert rows["position"].is_monotonic_increasing
    assert [path.name for path in tmp_path.iterdir()] == ["samples.csv"]


def test_throughput_follows_from_the_file_alone(tmp_path: Path) -> None:
    """Examples ÷ the slowest process's seconds, over the epochs that are counted."""
    rows = table(small(), tmp_path)
    run = next(run for run in small().runs if run.arm == "horovod ×2")
    counted = rows[(rows["position"] == run.position) & (rows["counted"] == "yes")]
    epochs = counted.groupby("epoch").agg({"epoch_examples": "first", "epoch_train_s": "max"})

    rate = epochs["epoch_examples"].sum() / epochs["epoch_train_s"].sum()

    slowest = [
        max(one.epochs[k].train_s for one in run.records)
        for k in range(1, len(run.records[0].epochs))
    ]
    assert epochs.index.tolist() == [1, 2, 3]
    assert rate == pytest.approx(3 * 120 / sum(slowest), rel=1e-12)


def test_executions_of_several_steps_and_lost_runs(tmp_path: Path) -> None:
    """The last execution may be shorter; of a failed run, what it recorded is there."""
    spec = spec_of("serial", steps_per_execution=4)
    made = epoch(2.0, step_end_s=[0.5, 1.0, 1.75], steps=10, steps_per_time=4)
    failed = Outcome(kind="failed", reason="power cut")
    arm = arm_of("serial")
    run = run_of(arm, [record(spec, [made], outcome=failed)], outcome=failed)

    rows = table(comparison_of([arm], [run]), tmp_path)

    assert rows["steps"].tolist() == [4, 4, 2]
    assert rows["duration_s"].tolist() == [0.5, 0.5, 0.75]
    assert rows["execution"].tolist() == [0, 1, 2]
    assert set(rows["counted"]) == {"no"}


def test_trials_are_samples_too() -> None:
    """They come first and differ from the runs."""
    arm = arm_of("serial")
    run = run_of(arm, [record(spec_of("serial"), [epoch(1.0)])])
    comparison = comparison_of([arm], [run], trials=[Trial(arm=arm, tuned_from="serial", run=run)])

    kinds = [row[0] for row in sample_rows(comparison)]

    assert kinds == ["trial", "trial", "run", "run"]


def test_a_label_cannot_break_a_row(tmp_path: Path) -> None:
    """Quotes, commas and line ends stay inside their field."""
    arm = arm_of("serial").replace(label='a,"b"\nc')
    run = run_of(arm, [record(spec_of("serial"), [epoch(1.0)])])

    write_samples(comparison_of([arm], [run]), tmp_path / "samples.csv")

    text = (tmp_path / "samples.csv").read_bytes().decode()
    assert set(pd.read_csv(io.StringIO(text))["arm"]) == {'a,"b"\nc'}


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is whole or not there, even if the disk fills in the middle."""
    file = tmp_path / "samples.csv"
    write_samples(small(), file)
    before = file.read_bytes()

    def failing(comparison: Comparison) -> object:
        yield from list(sample_rows(comparison))[:100]
        raise OSError("no space left on device")

    monkeypatch.setattr("ringside.report.samples.sample_rows", failing)
    with pytest.raises(OSError, match="no space left"):
        write_samples(small(), file)

    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["samples.csv"]
