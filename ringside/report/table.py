"""The results on a terminal."""

from dataclasses import replace

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from ringside.report.blocks import Cell
from ringside.report.sections.headline import headlines
from ringside.report.sections.noise import noise_line, rounds_line
from ringside.report.sections.proof import NOT_COMPARABLE, not_comparable, proof_of
from ringside.report.sections.tables import arms_in_order, results_table
from ringside.report.words import outcome_of, why_no_interval
from ringside.stats.summary import ArmRow, Summary, summarize
from ringside_core.specs import Comparison
from ringside_core.text import plain, wrapped

LABEL_WIDTH = 20
SHORT = {NOT_COMPARABLE: "not\ncomp."}  # the whole word would take the room of a number
# Columns of the results table that a terminal of 100 columns has room for, with shorter heads;
# (index, head, show the note).
COLUMNS = (
    (0, "arm", True),
    (1, "×", False),
    (2, "examples/s", True),
    (3, "vs own\n×1", False),
    (4, "vs\n{serial}", False),
    (5, "step\nms", False),
    (6, "target\ns", False),
    (7, "final\n{metric}", False),
    (8, "peak\nGiB", False),
    (9, "start\ns", False),
)


def render_table(comparison: Comparison) -> RichTable:
    """The main table of a comparison, 100 to 120 columns wide; what did not run stands below.

    Raises:
        RefusalError: the records contradict each other.
    """
    summary = summarize(comparison)
    table = RichTable(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        caption=_below(comparison, summary),
        caption_justify="left",
        caption_style="",
    )
    results = results_table(summary)
    words = {"serial": summary.serial or "serial", "metric": summary.quality_metric or "quality"}
    for index, head, _ in COLUMNS:
        # Fold, never crop: a number that lost a digit is another number.
        table.add_column(
            Text(plain(head.format(**words))),
            justify="right" if results.columns[index].numeric else "left",
            overflow="fold",
        )
    arms = arms_in_order(summary)
    # Twins are told of below, as the noise floor.
    shown = [pair for pair in zip(results.rows, arms, strict=True) if not pair[1].arm.twin_of]
    apart = sum(not arm.comparable for _, arm in shown)
    for place, (row, arm) in enumerate(shown):
        if apart and place == len(shown) - apart:
            table.add_section()
            table.add_row(Text("not comparable:", style="bold"))
        named = (replace(row[0], main=wrapped(_short_label(arm), LABEL_WIDTH)), *row[1:])
        table.add_row(
            *(_text(named[index], noted=noted) for index, _, noted in COLUMNS),
            style="" if arm.comparable else "dim",
        )
    return table


def _short_label(row: ArmRow) -> str:
    """The label without the size that the next column shows."""
    label, size = row.arm.label, f" ×{row.arm.replicas}"
    return row.arm.group if label == row.arm.group + size else label


def _text(cell: Cell, *, noted: bool) -> Text:
    """A cell as text: never as markup, which a label may contain."""
    text = Text(SHORT.get(cell.main, plain(cell.main)), style="red" if cell.bad else "")
    if cell.note and (noted or cell.bad):
        text.append("\n" + plain(cell.note), style="dim")
    return text


def _below(comparison: Comparison, summary: Summary) -> Text:
    """Who wins and how sure; what is proved; what is not ranked, did not run, was lost."""
    text = Text()
    for one in headlines(summary):
        text.append(plain(f"{one.size}: {one.sentence}"), style="bold")
        text.append(plain(f" {one.evidence}".rstrip()))
        beside = plain(f" {one.against_serial}".rstrip())
        text.append(beside + "\n", style="bold" if one.loses else "")
    for title, line in (
        ("Same arithmetic?", proof_of(summary, comparison.detection).answer),
        ("Noise floor", noise_line(summary)),
        ("Rounds", rounds_line(comparison, summary)),
    ):
        text.append(f"{title}  ", style="bold")
        text.append(plain(line) + "\n")
    text.append(
        "examples/s: geometric mean [95 % interval] n; vs own, vs serial: efficiency; other "
        "columns: medians.\n",
        style="dim",
    )
    if why_not := why_no_interval(row.throughput_estimate for row in summary.arms):
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
            text.append(plain(f"{run.arm}, round {run.round + 1}: {outcome_of(run.outcome)}"))
    return text
