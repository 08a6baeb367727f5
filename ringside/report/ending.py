"""The last line of a comparison on a terminal: what to do next."""

import math
import shlex

from ringside.report.ranking import ranked
from ringside.report.sections.headline import contenders, headlines
from ringside.report.sections.tables import target_cell
from ringside.stats.summary import Summary
from ringside_core.specs import Rounds
from ringside_core.text import listed


def next_step(summary: Summary, asked: Rounds, folder: str) -> str:
    """The one thing that helps most now.

    Args:
        summary: of the comparison.
        asked: how many rounds were to be made.
        folder: of the comparison, as it is typed.
    """
    resume = f"ringside compare --resume {shlex.quote(folder)}"
    if any(row.not_completed for row in summary.arms):
        return f"read why runs were lost: {folder}/report.html#failures"
    if not ranked(summary):
        if all(row.certificate is None for row in summary.arms):
            return "the same command without --no-verify, because only certified arms are ranked"
        return "see where the arms depart from the serial run: ringside verify --explain"
    targets = {row.arm.label: row.spreads["time_to_target_s"] for row in summary.arms}
    missed = [label for label, spread in targets.items() if target_cell(spread).bad]
    if missed:
        epochs = 2 * max(row.run.spec.epochs for row in summary.runs)
        return (
            f"train longer, with --epochs {epochs}: {listed(missed, limit=2)} missed the target of "
            f"{summary.quality_metric} {summary.quality_target:g}"
        )
    if _is_open(summary, asked):
        if asked.budget_s is None:
            return (
                "more rounds, because the verdict is still open: the same command without --rounds"
            )
        minutes = math.ceil(2 * asked.budget_s / 60)
        return f"more rounds, because the verdict is still open: {resume} --budget {minutes}m"
    if not summary.breakdown_arms:
        return "see where the time of a step goes: the same command with --why"
    if not any(row.arm.tuned_from for row in summary.arms):
        return "see what other settings gain: the same command with --tuned"
    return "ask the same of your own model: --workload my_file.py:workload (docs/own-model.md)"


def _is_open(summary: Summary, asked: Rounds) -> bool:
    """Whether the headline has no winner, and intervals are wider than they were to be."""
    top, widest = headlines(summary)[0], summary.widest_of_interest()
    if top.told or contenders(summary, top.replicas) is None:
        return False
    width = math.inf if widest is None else widest[1]
    return width > (asked.interval_width or 0.0)
