"""What a report says of the parts of a step, and of the difference between two arms."""

from dataclasses import replace

from ringside.report.blocks import Heading
from ringside.report.sections.breakdown import Breakdowns, breakdown_section
from ringside.stats.breakdown import Breakdown, Part
from ringside.stats.figure import Figure, Interval
from tests.unit.report.judged import tables
from tests.unit.report.views import bout_plots


def estimate(value: float, half: float = 0.05) -> Figure:
    """Of seven rounds."""
    return Figure(value, interval=Interval(value - half, value + half), n=7)


def test_parts_that_were_not_measured_say_how() -> None:
    """There is no empty plot and no zero."""
    assert "Run with --why" in breakdown_section(None).answer
    assert breakdown_section(None).blocks == ()


def test_the_difference_names_the_part_that_does_most_of_it() -> None:
    """In the direction of the whole; a part in the other direction is not its cause."""
    parts = (Part("input", estimate(0.8)), Part("exposed communication", estimate(-1.2)))
    difference = Breakdown("A", estimate(-0.5), parts, estimate(-0.1, 0.2), less="B")
    one = Breakdown("A", estimate(3.0), parts, estimate(3.4), "compute: not run")

    section = breakdown_section(Breakdowns((one,), difference))
    shown = tables(*section.blocks)

    assert section.answer == (
        "A needs 0.500 ms less for a global batch than B; the largest part is exposed "
        "communication, -1.20 ms [-1.25, -1.15] n=7. The remainder is -0.100 ms, 20 % of "
        "the difference; with this noise it can be chance."
    )
    assert Heading("A and B: where they differ") in section.blocks
    faster = breakdown_section(Breakdowns((one,), difference, faster=True))
    assert Heading("Why is A faster than B?") in faster.blocks
    assert [row[0].main for row in shown["Parts of the difference"].rows] == [
        "input",
        "exposed communication",
        "remainder",
        "whole",
    ]
    assert section.sure
    apart = breakdown_section(Breakdowns((one,), replace(difference, remainder=estimate(-0.1))))
    assert not apart.sure
    assert "The parts do not add up: the remainder is -0.100 ms, 20 % of the" in apart.answer
    # 3.4 ± 0.05: no chance; -0.1 ± 0.2: chance
    (row,) = shown["Parts of a step, one row for each arm"].rows
    assert row[-1].bad and row[-1].note.endswith("does not add up")
    chance = breakdown_section(
        Breakdowns((replace(one, remainder=estimate(-0.1, 0.2)),), difference)
    )
    (row,) = tables(*chance.blocks)["Parts of a step, one row for each arm"].rows
    assert not row[-1].bad


def test_parts_are_drawn_so_that_they_add_up() -> None:
    """Every part has its own hatch, for readers who see no colour; the plot names each."""
    svg = bout_plots()["breakdown"].svg

    for name in ("compute", "input", "exposed communication", "remainder"):
        assert f">{name}<" in svg
    assert svg.count("<pattern") >= 4
