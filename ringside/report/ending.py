"""The last two lines of a comparison on a terminal: what it says, and what to do next."""

import math
import shlex

from ringside.report.ranking import family_of, ranked
from ringside.report.sections.headline import contenders, headlines, loses
from ringside.report.sections.tables import target_cell
from ringside.report.words import times
from ringside.stats.figure import Spread
from ringside.stats.summary import ArmRow, Summary
from ringside_core.specs import Rounds
from ringside_core.text import listed


def headline(summary: Summary) -> str:
    """The verdict at the largest size in one plain sentence; tables hold the intervals."""
    told = headlines(summary)
    if not told:
        return "No arm can be ranked."
    top = told[0]
    where = f"With {top.size}"
    pair = contenders(summary, top.replicas)
    if pair is None:
        return f"{where}, {ranked(summary, top.replicas)[0].arm.label} is the only arm."
    first, second = _names(pair)
    if top.told and top.ratio is not None:
        much = times(top.ratio, top.interval)
        sentence = f"{where}, {first} is {much} as fast as {second}"
    elif top.interval is not None:
        sentence = f"{where}, {first} and {second} cannot be told apart"
    else:
        sentence = f"{where}, there is no verdict on {first} and {second}"
    return f"{sentence}{_beside_serial(summary, pair[0])}."


def _names(pair: tuple[ArmRow, ArmRow]) -> tuple[str, str]:
    """The families, if the two stand for different ones that distribute; else their labels."""
    first, second = map(family_of, pair)
    both = all(row.arm.capabilities.family != "none" for row in pair)
    if both and first != second:
        return first, second
    return pair[0].arm.label, pair[1].arm.label


def _beside_serial(summary: Summary, row: ArmRow) -> str:
    """Whether distribution gains anything; empty: that is not known."""
    if loses(summary, row):
        return f"; {summary.serial}, without distribution, is faster than {row.arm.label}"
    known = {one.arm.label for one in ranked(summary)}
    if summary.serial not in known or row.arm.label == summary.serial:
        return ""
    verdict = summary.verdict_of(row.arm.label, summary.serial)
    if verdict.word != "faster" or verdict.ratio.value is None:
        return ""
    much = times(verdict.ratio.value, verdict.ratio.interval)
    return f"; {row.arm.label} is {much} as fast as {summary.serial}, without distribution"


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
        return _first_certify(summary)
    missed = [row.arm.label for row in summary.arms if target_cell(_to_target(row)).bad]
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


def _first_certify(summary: Summary) -> str:
    if all(row.certificate is None for row in summary.arms):
        return "the same command without --no-verify, because only certified arms are ranked"
    return "see where the arms depart from the serial run: ringside verify --explain"


def _to_target(row: ArmRow) -> Spread:
    return row.spreads["time_to_target_s"]


def _is_open(summary: Summary, asked: Rounds) -> bool:
    """Whether the headline has no winner, and intervals are wider than they were to be."""
    top, widest = headlines(summary)[0], summary.widest_of_interest()
    if top.told or contenders(summary, top.replicas) is None:
        return False
    width = math.inf if widest is None else widest[1]
    return width > (asked.interval_width or 0.0)
