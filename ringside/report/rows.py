"""One CSV row for each run: what was run, how it ended, what it came to."""

import csv
import io
from collections.abc import Iterator

from ringside.stats.rounds import disturbance
from ringside.stats.run_figures import FIGURES
from ringside.stats.summary import RunRow, Summary

COLUMNS = (
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
    writer.writerow(COLUMNS)
    writer.writerows(csv_rows(summary))
    return stream.getvalue()


def csv_rows(summary: Summary) -> Iterator[tuple[object, ...]]:
    """The rows below the head, as `render_csv` writes them."""
    arms = (*summary.arms, *summary.breakdown_arms)
    reasons = {row.arm.label: row.not_comparable_because for row in arms}
    for row in summary.runs:
        fields = _row(row, summary, reasons[row.arm.label])
        yield tuple(fields[column] for column in COLUMNS)


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
