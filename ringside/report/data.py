"""The report as data: results.csv has a row for each run, samples.csv one for each raw time."""

import csv
import io
from collections.abc import Iterator
from typing import BinaryIO

from ringside.stats.rounds import disturbance
from ringside.stats.run_figures import FIGURES
from ringside.stats.step_times import counted_executions
from ringside.stats.summary import RunRow, Summary
from ringside_core.specs import Comparison, EpochRecord, Run, RunRecord

RUN_COLUMNS = (
    "position",
    "round",
    "arm",
    "group",
    "backend",
    "replicas",
    "twin_of",
    "tuned_from",
    "ablation",
    "workload",
    "global_batch",
    "epochs",
    "precision",
    "policy",
    "trained_by",
    "keras",
    "seed",
    "run_name",
    "outcome",
    "outcome_reason",
    "round_counts",
    "disturbed_by",
    "wall_s",
    *FIGURES,
    "quality_metric",
    "quality_target",
    "each_example_once",
    "replicas_equal",
    "comparable",
    "not_comparable_because",
    "why_missing",
    "log_dir",
)


def render_csv(summary: Summary) -> str:
    """All runs in the order in which they were started; a missing number is an empty field."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(RUN_COLUMNS)
    writer.writerows(csv_rows(summary))
    return stream.getvalue()


def csv_rows(summary: Summary) -> Iterator[tuple[object, ...]]:
    """The rows below the head, as `render_csv` writes them."""
    arms = (*summary.arms, *summary.breakdown_arms)
    reasons = {row.arm.label: row.not_comparable_because for row in arms}
    for row in summary.runs:
        fields = _row(row, summary, reasons[row.arm.label])
        yield tuple(fields[column] for column in RUN_COLUMNS)


def _row(row: RunRow, summary: Summary, not_comparable_because: str) -> dict[str, object]:
    run, spec, figures = row.run, row.run.spec, row.figures
    numbers = {name: getattr(figures, name) for name in FIGURES}
    return {
        "position": run.position,
        "round": run.round,
        "arm": row.arm.label,
        "group": row.arm.group,
        "backend": row.arm.backend,
        "replicas": row.arm.replicas,
        "twin_of": row.arm.twin_of,
        "tuned_from": row.arm.tuned_from,
        "ablation": row.arm.ablation,
        "workload": spec.workload,
        "global_batch": spec.global_batch,
        "epochs": spec.epochs,
        "precision": spec.precision,
        "policy": spec.policy or "",
        "trained_by": spec.trained_by,
        "keras": f"{spec.keras} as shipped" if spec.as_shipped else spec.keras,
        "seed": spec.seed,
        "run_name": spec.run_name,
        "outcome": run.outcome.kind,
        "outcome_reason": str(run.outcome) if not run.outcome.completed else "",
        "round_counts": "yes" if row.used else "no",
        "disturbed_by": disturbance(run),
        "wall_s": run.wall_s,
        **{name: figure.value for name, figure in numbers.items()},
        "quality_metric": summary.quality_metric,
        "quality_target": summary.quality_target,
        "each_example_once": figures.each_example_once,
        "replicas_equal": figures.replicas_equal,
        "comparable": "no" if not_comparable_because else "yes",
        "not_comparable_because": not_comparable_because,
        "why_missing": "; ".join(
            f"{name}: {figure.reason}" for name, figure in numbers.items() if figure.value is None
        ),
        "log_dir": run.log_dir,
    }


# Samples

SAMPLE_COLUMNS = (
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


def samples_into(stream: BinaryIO, comparison: Comparison) -> None:
    """Write the rows of samples.csv into an open file, one by one: they may be many."""
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(SAMPLE_COLUMNS)
    writer.writerows(sample_rows(comparison))
    text.detach()  # who opened the stream closes it


def sample_rows(comparison: Comparison) -> Iterator[Row]:
    """The rows: trials first, then the runs in the order in which they were started.

    One row for each entry of `step_end_s`, which is one step, or one execution of several
    (`steps`). Numbers of rounds, epochs and executions count from 0, as in results.json.
    `duration_s` is the time since the end of the one before in the same process; of the first,
    since the barrier before it. `counted` is `no` for warm-up, and for what
    lies between the blocks of a live run or at their beginning. A process that trained nothing has
    no row.
    """
    for trial in comparison.trials:
        yield from _of_run("trial", trial.run)
    for run in sorted(comparison.runs, key=lambda run: run.position):
        yield from _of_run("run", run)


def _of_run(kind: str, run: Run) -> Iterator[Row]:
    for record in run.records:
        counted = iter(counted_executions(run, record))
        for number in range(len(record.epochs)):
            yield from _of_epoch((kind, run.position, run.round, run.arm), record, number, counted)


def _of_epoch(run: Row, record: RunRecord, number: int, counted: Iterator[bool]) -> Iterator[Row]:
    epoch = record.epochs[number]
    before = 0.0
    for index, (end, counts) in enumerate(zip(epoch.step_end_s, counted, strict=False)):
        yield (
            *run,
            record.task,
            record.role,
            number,
            index,
            _steps(epoch, index),
            end,
            end - before,
            "yes" if counts else "no",
            epoch.examples,
            epoch.train_s,
        )
        before = end


def _steps(epoch: EpochRecord, index: int) -> int:
    """Steps in one execution; the last one of an epoch may be shorter."""
    return min(epoch.steps_per_time, epoch.steps - index * epoch.steps_per_time)
