"""Cells of the tables of arms, and captions: what a reader could take for something else."""

from ringside.report.blocks import Folded, Text
from ringside.report.sections.accuracy import accuracy_section
from ringside.report.sections.resources import resources_table
from ringside.report.sections.speed import results_section
from ringside.report.sections.tables import efficiency_cell, results_table
from ringside.report.view import view_of
from ringside.stats.figure import Interval
from ringside.stats.summary import Efficiency, summarize
from tests.unit.report.bout import bout
from tests.unit.report.judged import bare, judged
from tests.unit.report.small import small
from tests.unit.report.views import bout_plots, bout_view


def test_an_efficiency_has_its_unit_and_its_base() -> None:
    """Value and interval are percentages of the arm that is named."""
    (row, *_) = judged().arms
    value = Efficiency(0.871, interval=Interval(0.844, 0.902), base="serial ×9")

    cell = efficiency_cell(value, row, "none")

    assert (cell.main, cell.note) == ("87 %", "[84, 90] % of serial ×9")


def test_an_arm_without_a_base_says_which_is_missing() -> None:
    """Its group at one replica, or serial; a twin names its arm."""
    summary = summarize(bare({("horovod", 2): 1.0, ("mirrored", 2): 2.0}))
    rows = {row[0].main: row for row in results_table(summary).rows}
    twin = next(row for row in results_table(bout_view().summary).rows if "again" in row[0].main)

    assert [cell.note for cell in rows["horovod ×2"][3:5]] == [
        "no horovod ×1",
        "no arm without distribution",
    ]
    assert {cell.note for cell in twin[3:5]} == {"the same arm as horovod:controller=mpi ×2"}


def test_the_reason_of_a_missing_interval_stands_once_below() -> None:
    """A cell only says how many rounds there were."""
    comparison = bare(rounds=2)
    summary = summarize(comparison)

    table = results_table(summary)
    section = results_section(summary)

    assert {row[2].note.partition("] ")[2] for row in table.rows} == {"n=2, no interval"}
    reason = "Where there is no interval: 2 rounds: too few for an interval, 3 are needed."
    assert section.blocks.count(Text(reason)) == 1


def test_twins_are_left_out_of_the_highest_and_said_to_be() -> None:
    """Otherwise a twin with the highest number would contradict the answer."""
    assert bout_view().section("results").answer.endswith("(twins aside).")
    assert "(twins aside)" in bout_view().section("steps").answer
    assert "(twins aside)" in bout_plots()["throughput"].caption
    assert "twins" not in view_of(small()).section("results").answer


def test_all_that_was_run_is_in_the_lead() -> None:
    """Runs are not arms × rounds: one arm ran twice, and some are breakdown runs."""
    diagnostic = sum(arm.for_breakdown for arm in bout().arms)

    assert f"15 arms × 8 rounds, 1 of them twice, {diagnostic} breakdown arms on" in (
        bout_view().lead
    )
    assert "3 arms × 4 rounds on" in view_of(small()).lead


def test_processes_are_counted_in_all() -> None:
    """The number covers all processes; the note names those without a replica."""
    (column,) = [one for one in resources_table([]).columns if one.name == "Processes"]

    assert column.note == "in all; extra ones hold no replica"


def test_the_rule_of_no_interval_is_said_once() -> None:
    """The cell has the number of runs; the text above has the rule."""
    view = bout_view()
    section = accuracy_section(view.comparison, view.summary)
    text, table = section.blocks[:2]

    assert isinstance(text, Text) and text.text.count("has no interval") == 1
    assert "Time = paid once + epochs × seconds for an epoch." in text.text
    assert "interval" not in str(table)


def test_what_has_a_row_for_each_run_is_not_in_markdown() -> None:
    """Markdown names the files that hold it."""
    (order,) = bout_view().section("order").blocks

    assert isinstance(order, Folded)
    assert order.files == ("report.html", "results.csv")
