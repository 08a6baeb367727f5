"""The last line of a comparison on a terminal: what to do next."""

import math
import shlex

from ringside.report.sections.headline import MORE_TIME, headline_of, what_helps
from ringside.report.sections.tables import target_cell
from ringside.stats.summary import Summary
from ringside_core.specs import Comparison
from ringside_core.text import listed


def next_step(summary: Summary, comparison: Comparison, folder: str) -> str:
    """The one thing that helps most now.

    Args:
        summary: of the comparison.
        comparison: its records.
        folder: of the comparison, as it is typed.
    """
    if any(row.not_completed for row in summary.arms):
        return f"read why runs were lost: {folder}/report.html#failures"
    headline = headline_of(comparison, summary)
    if headline.word == "no arm":
        if all(row.certificate is None for row in summary.arms):
            return "the same command without --no-verify, because only certified arms are ranked"
        return "see where the arms depart from the serial run: ringside verify --explain"
    word = headline.word
    if word == "one launch" and comparison.asked.launches == 0:
        return "a final: the same command without --launches 0"
    if word in ("cannot tell", "no verdict"):
        if (helps := what_helps(comparison)) != MORE_TIME:
            return helps
        minutes = math.ceil(2 * comparison.asked.budget_s / 60)
        resume = f"ringside compare --resume {shlex.quote(folder)}"
        why = "the interval is wide" if word == "cannot tell" else "there is no interval"
        return f"more launches, because {why}: {resume} --budget {minutes}m"
    targets = {row.arm.label: row.spreads["time_to_target_s"] for row in summary.arms}
    missed = [label for label, spread in targets.items() if target_cell(spread).bad]
    if missed:
        epochs = 2 * max(row.run.spec.epochs for row in summary.runs)
        return (
            f"train longer, with --epochs {epochs}: {listed(missed, limit=2)} missed the target of "
            f"{summary.quality_metric} {summary.quality_target:g}"
        )
    if not summary.breakdown_arms:
        return "see where the time of a step goes: the same command with --why"
    if not any(row.arm.tuned_from for row in summary.arms):
        return "see what other settings gain: the same command with --tuned"
    return "ask the same of your own model: --workload my_file.py:workload (docs/own-model.md)"
