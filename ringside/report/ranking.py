"""Which arms are ranked, and the ratio of two of them as a cell."""

from collections.abc import Sequence

from ringside.report.blocks import Cell
from ringside.report.words import NOTHING, span_or_none, times
from ringside.stats.final import Pair
from ringside.stats.summary import ArmRow, Summary
from ringside_core.specs.backends import FAMILIES


def family_of(row: ArmRow) -> str:
    """The family of an arm's backend, in words."""
    return FAMILIES[row.arm.capabilities.family]


def ranked(summary: Summary, replicas: int | None = None) -> list[ArmRow]:
    """Arms that are proved to compute the same and have a throughput; no twins.

    Fastest first, those of the final before those that ran once: another hour is another machine.

    Args:
        summary: of a comparison; its `arms` hold no breakdown arms.
        replicas: only arms of this size.
    """
    kept = [
        row
        for row in summary.arms
        if row.comparable
        and not row.arm.twin_of
        and row.mean_throughput.value is not None
        and replicas in (None, row.arm.replicas)
    ]
    once = {row.arm.label: row.mean_throughput.interval is None for row in kept}
    return sorted(kept, key=lambda r: (once[r.arm.label], -(r.mean_throughput.value or 0.0)))


def sizes_of(rows: Sequence[ArmRow]) -> list[int]:
    """Numbers of replicas, smallest first."""
    return sorted({row.arm.replicas for row in rows})


def twins_aside(summary: Summary) -> str:
    """Words for `without twins`; empty: no arm was measured twice."""
    return " (twins aside)" if any(row.arm.twin_of for row in summary.arms) else ""


def ratio_cell(pair: Pair) -> Cell:
    """Ratio, interval and word; a ratio without interval says so."""
    if pair.ratio.value is None:
        return Cell(NOTHING, pair.ratio.reason)
    return Cell(
        times(pair.ratio.value, pair.ratio.interval),
        span_or_none(pair.ratio),
        word=pair.word,
        tone="won" if pair.word in ("faster", "slower") else "tie",
    )
