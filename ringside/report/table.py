"""The results on a terminal."""

from dataclasses import replace

from rich.table import Table as RichTable
from rich.text import Text

from ringside.report.blocks import Cell, Table
from ringside.report.sections.headline import headline_of
from ringside.report.sections.noise import launches_line, noise_line
from ringside.report.sections.proof import NOT_COMPARABLE, not_comparable, proof_answer
from ringside.report.sections.tables import arms_in_order, results_table
from ringside.report.terminal import rich_table
from ringside.report.words import outcome_of, why_no_interval
from ringside.stats.summary import ArmRow, Summary, summarize
from ringside_core.specs import Comparison
from ringside_core.text import plain

LABEL_WIDTH = 20
SHORT = {NOT_COMPARABLE: "not\ncomp."}  # the whole word would take the room of a number
# Columns of the results table that a terminal of 100 columns has room for, with shorter heads;
# (index, head, show the note). Accuracy and memory are in the report: the target's column says who
# missed it.
COLUMNS = (
    (0, "arm", True),
    (1, "×", False),
    (2, "examples/s", True),
    (3, "vs own\n×1", False),
    (4, "vs\n{serial}", False),
    (5, "step\nms", False),
    (6, "target\ns", False),
    (9, "start\ns", False),
)


def render_table(comparison: Comparison) -> RichTable:
    """The main table of a comparison, at most 100 columns wide; below it, what did not run.

    Raises:
        RefusalError: the records contradict each other.
    """
    summary = summarize(comparison)
    results = results_table(summary)
    serial = summary.serial or "serial"
    columns = tuple(
        replace(results.columns[index], name=head.format(serial=serial), note="")
        for index, head, _ in COLUMNS
    )
    # Twins are not rows: below they are the noise floor.
    shown = [
        (row, arm)
        for row, arm in zip(results.rows, arms_in_order(summary), strict=True)
        if not arm.arm.twin_of
    ]
    table = Table(
        columns,
        tuple(_short_row(row, arm) for row, arm in shown),
        apart=sum(not arm.comparable for _, arm in shown),
    )
    return rich_table(table, below=_below(comparison, summary), label_width=LABEL_WIDTH)


def _short_row(row: tuple[Cell, ...], arm: ArmRow) -> tuple[Cell, ...]:
    """The cells for which a terminal has room; most of them without their note."""
    named = (replace(row[0], main=_short_label(arm)), *row[1:])
    return tuple(
        replace(
            named[index],
            main=SHORT.get(named[index].main, named[index].main),
            note=named[index].note if noted or named[index].bad else "",
        )
        for index, _, noted in COLUMNS
    )


def _short_label(row: ArmRow) -> str:
    """The label without the size that the next column shows."""
    label, size = row.arm.label, f" ×{row.arm.replicas}"
    return row.arm.group if label == row.arm.group + size else label


def _below(comparison: Comparison, summary: Summary) -> Text:
    """Who wins and how sure; what is proved; what is not ranked, did not run, was lost."""
    text = Text()
    headline = headline_of(comparison, summary)
    text.append(plain(headline.sentence), style="bold")
    text.append(plain(f" {headline.evidence}".rstrip()))
    beside = plain(f" {headline.against_serial}".rstrip())
    text.append(beside + "\n", style="bold" if headline.loses else "")
    for title, line in (
        ("Same arithmetic?", proof_answer(summary)),
        ("Noise floor", noise_line(summary)),
        ("Launches", launches_line(comparison, summary)),
    ):
        text.append(f"{title}  ", style="bold")
        text.append(plain(line) + "\n")
    text.append(
        "examples/s: geometric mean [95 % interval] n; vs own, vs serial: efficiency; other "
        "columns: medians.\n",
        style="dim",
    )
    few = (row.mean_throughput for row in summary.arms if row.mean_throughput.n != 1)
    if why_not := why_no_interval(few):
        text.append(plain(why_not) + "\n", style="dim")
    for arms, reason in not_comparable(summary):
        text.append("\nnot comparable  ", style="bold")
        text.append(plain(f"{arms}: {reason}"))
    for absent in comparison.not_run:
        text.append("\nnot run  ", style="bold")
        text.append(plain(f"{absent.label}: {absent.reason}"))
    for row in summary.arms:
        for run in row.not_completed:
            text.append("\nlost     ", style="bold red")
            text.append(plain(f"{run.arm}, {run.stage}: {outcome_of(run.outcome)}"))
    return text
