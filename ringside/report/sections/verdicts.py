"""All pairs: a matrix for each size, and all arms against serial."""

from ringside.report.blocks import Block, Cell, Column, Heading, Section, Table, Text
from ringside.report.ranking import ranked, ratio_cell, sizes_of
from ringside.report.words import NOTHING
from ringside.stats.summary import ArmRow, Summary
from ringside_core.text import plural


def verdicts_section(summary: Summary, answer: str) -> Section:
    """Who is faster than whom.

    Args:
        summary: of the comparison.
        answer: the sentence of the headline.
    """
    rows = ranked(summary)
    blocks: list[Block] = []
    for size in reversed(sizes_of(rows)):
        of_size = ranked(summary, size)
        if len(of_size) > 1:
            blocks += [Heading(plural(size, "replica")), matrix_of(summary, of_size)]
    if blocks:
        blocks.insert(
            0,
            Text(
                "How many times as fast the arm of the row is as the arm of the column, with the "
                "95 % interval of that pair alone. Only the headline and arms against serial are "
                "questions with an answer; arms that were not in the final ran once."
            ),
        )
    if (serial := serial_table(summary)) is not None:
        blocks += [Heading("Against serial"), serial]
    sure = summary.contest is not None and summary.contest.word in ("faster", "no difference")
    return Section(
        "verdicts", "Who is faster than whom?", "Verdicts", answer, tuple(blocks), sure=sure
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
                ratio_cell(summary.pair_of(first, second))
                if place > index
                else Cell("", tone="empty")
                for place, second in enumerate(labels[1:], start=1)
            ),
        )
        for index, first in enumerate(labels[:-1])
    )
    size = plural(rows[0].arm.replicas, "replica")
    return Table(heads, body, label=f"All pairs of {size}", kind="verdicts")


def serial_table(summary: Summary) -> Table | None:
    """Every arm against the run without distribution, fastest first."""
    rows = ranked(summary)
    if not any(row.arm.label == summary.serial for row in rows) or len(rows) < 2:
        return None
    columns = (
        Column("Arm", numeric=False),
        Column("Replicas"),
        Column("Times as fast", f"as {summary.serial}"),
        Column("Verdict", "by Holm's method", numeric=False),
    )
    body = []
    for row in rows:
        if row.arm.label == summary.serial:
            continue
        pair = summary.pair_of(row.arm.label, summary.serial)
        cell = ratio_cell(pair)
        body.append(
            (
                Cell(row.arm.label),
                Cell(str(row.arm.replicas)),
                Cell(cell.main, cell.note),
                Cell(pair.word or NOTHING, tone=cell.tone),
            )
        )
    return Table(columns, tuple(body), label="Every arm against serial", kind="serial")
