"""Verdicts of all pairs: a matrix for each size, all arms against serial, and the whole list."""

import math

from ringside.report.blocks import Block, Cell, Column, Folded, Heading, Section, Table, Text, heads
from ringside.report.ranking import ranked, sizes_of, verdict_cell, word_of
from ringside.report.words import NOTHING, ratio_between, span_or_none, times, why_no_interval
from ringside.stats.summary import ArmRow, Summary
from ringside.stats.verdicts import PairVerdict
from ringside_core.text import percent, plural

SURE = Column("Sure to be seen", "difference, 4 times in 5")


def verdicts_section(summary: Summary) -> Section:
    """Who is faster than whom."""
    rows = ranked(summary)
    blocks: list[Block] = []
    pairs: list[PairVerdict] = []
    for size in reversed(sizes_of(rows)):
        of_size = ranked(summary, size)
        if len(of_size) > 1:
            blocks += [Heading(plural(size, "replica")), matrix_of(summary, of_size)]
            own = {row.arm.label for row in of_size}
            pairs += [one for one in summary.verdicts if {one.first, one.second} <= own]
    if pairs:
        blocks.insert(
            0,
            Text(
                "How many times as fast the arm of the row is as the arm of the column, with the "
                "95 % interval of that pair. The headline of each size and each arm against serial "
                "are asked first: their words are corrected for their number. So are those of the "
                "other pairs, among themselves."
            ),
        )
    if (serial := serial_table(summary)) is not None:
        blocks += [Heading("Against serial"), serial]
    if summary.verdicts:
        count = len(summary.verdicts)
        if why_not := why_no_interval(one.ratio for one in summary.verdicts):
            blocks.append(Text(why_not))
        blocks.append(Folded(f"All {count} pairs, with p-values", (pair_table(summary.verdicts),)))
    return Section(
        "verdicts",
        "Who is faster than whom?",
        "Verdicts",
        _answer(pairs),
        tuple(blocks),
        sure=bool(pairs) and all(one.ratio.interval for one in pairs),
    )


def matrix_of(summary: Summary, rows: list[ArmRow]) -> Table:
    """Upper triangle of the pairs of one size, fastest first."""
    labels = [row.arm.label for row in rows]
    heads = (
        Column("Arm", "is … as fast as", numeric=False),
        *(Column(label, numeric=False) for label in labels[1:]),
    )
    body = tuple(
        (
            Cell(first),
            *(
                verdict_cell(summary.verdict_of(first, second))
                if place > index
                else Cell("", tone="empty")
                for place, second in enumerate(labels[1:], start=1)
            ),
        )
        for index, first in enumerate(labels[:-1])
    )
    size = plural(rows[0].arm.replicas, "replica")
    return Table(heads, body, label=f"Verdicts of all pairs of {size}", kind="verdicts")


def serial_table(summary: Summary) -> Table | None:
    """Every arm against the run without distribution, fastest first."""
    rows = ranked(summary)
    if not any(row.arm.label == summary.serial for row in rows) or len(rows) < 2:
        return None
    columns = (
        Column("Arm", numeric=False),
        Column("Replicas"),
        Column("Times as fast", f"as {summary.serial}"),
        Column("Verdict", numeric=False),
        SURE,
    )
    body = []
    for row in rows:
        if row.arm.label == summary.serial:
            continue
        verdict = summary.verdict_of(row.arm.label, summary.serial)
        cell = verdict_cell(verdict)
        body.append(
            (
                Cell(row.arm.label),
                Cell(str(row.arm.replicas)),
                Cell(cell.main, cell.note),
                Cell(word_of(verdict), tone=cell.tone),
                visible_cell(verdict),
            )
        )
    return Table(columns, tuple(body), label="Every arm against serial", kind="serial")


def pair_table(verdicts: tuple[PairVerdict, ...]) -> Table:
    """One row for each pair, with all numbers behind its verdict."""
    columns = heads(
        "<Faster by ratio | <Other | Ratio (95 % interval) | Rounds | <Verdict | p | "
        "p, adjusted (Holm)"
    )
    rows = tuple(
        (
            Cell(one.first),
            Cell(one.second),
            Cell(NOTHING, ratio_between(one))
            if one.ratio.value is None
            else Cell(times(one.ratio.value, one.ratio.interval), span_or_none(one.ratio)),
            Cell(str(one.ratio.n)),
            Cell(word_of(one), one.reason if one.ratio.interval else ""),
            Cell(_p(one.p_value)),
            Cell(_p(one.p_adjusted)),
            visible_cell(one),
        )
        for one in verdicts
    )
    return Table((*columns, SURE), rows, label="All pairs", kind="pairs")


def visible_cell(verdict: PairVerdict) -> Cell:
    """The smallest difference that such an experiment would show in 4 of 5 cases."""
    if verdict.smallest_visible is None:
        return Cell(NOTHING)
    if math.isinf(verdict.smallest_visible):
        return Cell("nothing", "above 100 %")
    return Cell(percent(verdict.smallest_visible))


def _p(value: float | None) -> str:
    if value is None:
        return NOTHING
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _answer(pairs: list[PairVerdict]) -> str:
    if not pairs:
        return "There are no two comparable arms of one size, so there is no verdict."
    told = sum(one.ratio.interval is not None and one.word != "cannot tell" for one in pairs)
    missing = [one for one in pairs if one.ratio.interval is None]
    if len(missing) == len(pairs):
        return f"No verdict: {ratio_between(missing[0]) or 'no interval'}."
    return f"{told} of {plural(len(pairs), 'pair')} of the same size can be told apart" + (
        "." if told == len(pairs) else f"; {len(pairs) - told} cannot."
    )
