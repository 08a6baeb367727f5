"""Which arms are ranked, and the verdict on two of them as a cell."""

from collections.abc import Sequence

from ringside.report.blocks import Cell
from ringside.report.words import NOTHING, span_or_none, times
from ringside.stats.contenders import ranking
from ringside.stats.summary import ArmRow, Summary
from ringside.stats.verdicts import PairVerdict
from ringside_core.specs.backends import FAMILIES


def family_of(row: ArmRow) -> str:
    """The family of an arm's backend, in words."""
    return FAMILIES[row.arm.capabilities.family]


def ranked(summary: Summary, replicas: int | None = None) -> list[ArmRow]:
    """Arms that are proved to compute the same and have a throughput, fastest first; no twins.

    Args:
        summary: of a comparison; its `arms` hold no breakdown arms.
        replicas: only arms of this size.
    """
    return ranking(summary.arms, replicas)


def sizes_of(rows: Sequence[ArmRow]) -> list[int]:
    """Numbers of replicas, smallest first."""
    return sorted({row.arm.replicas for row in rows})


def counted_runs(summary: Summary, row: ArmRow) -> int:
    """Completed runs of an arm in the rounds that count."""
    own = [one for one in summary.runs if one.arm == row.arm]
    return sum(one.run.outcome.completed and one.used for one in own)


def twins_aside(summary: Summary) -> str:
    """Words for `without twins`; empty: no arm was measured twice."""
    return " (twins aside)" if any(row.arm.twin_of for row in summary.arms) else ""


def verdict_cell(verdict: PairVerdict) -> Cell:
    """Ratio, interval and word; a ratio without interval says so."""
    if verdict.ratio.value is None:
        return Cell(NOTHING, verdict.ratio.reason or verdict.reason)
    return Cell(
        times(verdict.ratio.value, verdict.ratio.interval),
        span_or_none(verdict.ratio),
        word=word_of(verdict),
        tone="won" if word_of(verdict) in ("faster", "slower") else "tie",
    )


def word_of(verdict: PairVerdict) -> str:
    """The verdict's word; without an interval, `no verdict`."""
    return "no verdict" if verdict.ratio.interval is None else verdict.word
