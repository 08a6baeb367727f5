"""What a report says of all-reduces, and of the bytes and the time of each arm."""

import pytest

from ringside.report.blocks import Folded, Text
from ringside.report.sections.communication import (
    NOT_MEASURED,
    communication_section,
)
from ringside_core.specs import Communication, Link
from tests.unit.report.bout import PARAMETERS, bout
from tests.unit.report.judged import bare, judged, tables
from tests.unit.report.views import bout_view


def measured() -> Communication:
    """Of the made-up comparison."""
    found = bout().communication
    assert found is not None
    return found


def test_without_a_measurement_the_command_is_named() -> None:
    """The bytes of each arm are still shown."""
    section = communication_section(bare(), judged(), None)

    assert section.answer == NOT_MEASURED
    assert "Communication of each arm" in tables(*section.blocks)


def test_bytes_and_time_of_an_arm() -> None:
    """4 bytes a weight, 8.3 were counted; between two ranks t(n) = 90 µs + n · 0.9 ns over Gloo."""
    section = bout_view().section("communication")
    rows = {row[0].main: row for row in tables(*section.blocks)["Communication of each arm"].rows}

    gradients, sent, time = (cell.main for cell in rows["horovod ×2"][1:4])
    assert gradients == f"{4 * PARAMETERS:,}"
    assert int(sent.replace(",", "")) == pytest.approx(8.3 * PARAMETERS, rel=1e-2)
    assert float(time) == pytest.approx(1e3 * (90e-6 + 4 * PARAMETERS * 0.9e-9), rel=0.15)
    assert rows["mirrored ×2"][3].main == rows["parameter_server ×2"][3].main == "–"


def test_a_stack_that_cannot_run_is_a_line_with_the_reason() -> None:
    """It has no number."""
    section = communication_section(bare().replace(communication=measured()), judged(), None)
    (folded,) = (block for block in section.blocks if isinstance(block, Folded))
    rows = {
        row[0].main: row for row in tables(*folded.blocks)["Every size of every all-reduce"].rows
    }

    row = rows["horovod nccl"]

    assert (row[1].main, row[1].note) == ("–", "refused: needs an NVIDIA GPU: none is found")
    assert {cell.main for cell in row[2:]} == {"–"}


def test_between_hosts_the_link_is_told() -> None:
    """Each link is shown, and each time with the least that the slowest link allows."""
    links = tuple(
        Link(sender=a, receiver=b, bytes=rate, seconds=8.0)
        for a, b, rate in (("one", "two", 4 * 10**9), ("two", "one", 3 * 10**9))
    )
    found = measured().replace(hosts=("one", "two"), links=links)

    section = communication_section(bare().replace(communication=found), judged(), None)

    said = " ".join(block.text for block in section.blocks if isinstance(block, Text))
    assert "one to two 4 Gbit/s; two to one 3 Gbit/s" in said
    (folded,) = (block for block in section.blocks if isinstance(block, Folded))
    share = tables(*folded.blocks)["Every size of every all-reduce"].rows[8][-1]
    timing = found.stacks[0].timings[8]
    mean_s = sum(map(sum, timing.seconds)) / 10
    # Between two: as many bytes as the array has, over the slower link.
    percent = 100 * 8 * timing.size_bytes / 3e9 / mean_s
    assert share.main.split() == [f"{percent:.0f}", "%"] and share.bad == (percent > 105)


def test_wrong_elements_are_shouted() -> None:
    """An all-reduce with wrong results is none."""
    first, *others = measured().stacks
    broken = first.replace(timings=(first.timings[0].replace(wrong=3), *first.timings[1:]))
    found = measured().replace(stacks=(broken, *others))

    section = communication_section(bare().replace(communication=found), judged(), None)

    assert "3 ELEMENTS WERE WRONG" in section.answer
    assert not section.sure
