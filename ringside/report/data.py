"""The report as data: results.csv has a row for each run, samples.csv one for each raw time."""

import csv
import io
from collections.abc import Iterator
from typing import BinaryIO

from ringside.stats.rounds import disturbance
from ringside.stats.step_times import counted_executions
from ringside.stats.summary import RunRow, Summary
from ringside_core.specs import Comparison, Run


def render_csv(summary: Summary) -> str:
    """All runs in the order in which they were started; a missing number is an empty field."""
    arms = (*summary.arms, *summary.breakdown_arms)
    reasons = {row.arm.label: row.not_comparable_because for row in arms}
    rows = [_run_row(row, summary, reasons[row.arm.label]) for row in summary.runs]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, rows[0] if rows else (), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def _run_row(row: RunRow, summary: Summary, why_not_comparable: str) -> dict[str, object]:
    run, spec = row.run, row.run.spec
    arm = ("group", "backend", "replicas", "twin_of", "tuned_from", "ablation")
    ran = ("workload", "global_batch", "epochs", "precision", "policy", "keras")
    missing = [f"{name}: {one.reason}" for name, one in row.figures.items() if one.value is None]
    return {
        "position": run.position,
        "round": run.round,
        "arm": row.arm.label,
        **{name: getattr(row.arm, name) for name in arm},
        **{name: getattr(spec, name) for name in ran},
        "seed": spec.seed,
        "run_name": spec.run_name,
        "outcome": run.outcome.kind,
        "outcome_reason": "" if run.outcome.completed else str(run.outcome),
        "round_counts": "yes" if row.used else "no",
        "disturbed_by": disturbance(run),
        "wall_s": run.wall_s,
        **{name: figure.value for name, figure in row.figures.items()},
        "quality_metric": summary.quality_metric,
        "quality_target": summary.quality_target,
        "same_rows": row.same_rows,
        "replicas_equal": row.replicas_equal,
        "comparable": "no" if why_not_comparable else "yes",
        "not_comparable_because": why_not_comparable,
        "why_missing": "; ".join(missing),
        "log_dir": run.log_dir,
    }


# Samples

SAMPLE_COLUMNS = (
    *("kind", "position", "round", "arm", "task", "role"),
    *("epoch", "execution", "steps", "step_end_s", "duration_s", "counted"),
    *("epoch_examples", "epoch_train_s"),
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
        for number, epoch in enumerate(record.epochs):
            before = 0.0
            for index, (end, counts) in enumerate(zip(epoch.step_end_s, counted, strict=False)):
                yield (
                    *(kind, run.position, run.round, run.arm, record.task, record.role),
                    *(number, index),
                    # the last execution of an epoch may hold fewer steps
                    min(epoch.steps_per_time, epoch.steps - index * epoch.steps_per_time),
                    *(end, end - before, "yes" if counts else "no"),
                    *(epoch.examples, epoch.train_s),
                )
                before = end
