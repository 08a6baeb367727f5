"""What a report says of collectives, and of the bytes and the time of each arm."""

import statistics

import pytest

from ringside.report.blocks import Folded, Text
from ringside.report.breakdown_plots import communication_plot
from ringside.report.sections.communication import (
    NOT_MEASURED,
    communication_section,
    models_of,
)
from ringside_core.specs import Host, Link
from tests.unit.report.bout import PARAMETERS, bout
from tests.unit.report.judged import bare, judged, tables
from tests.unit.report.views import bout_plots, bout_view


def test_without_a_measurement_the_command_is_named() -> None:
    """The bytes of each arm are still shown."""
    section = communication_section(bare(), judged(), None)

    assert section.answer == NOT_MEASURED
    assert "Communication of each arm" in tables(*section.blocks)


def test_model_finds_what_the_collectives_were_made_of() -> None:
    """t(n) = 2α + n·β + n/2·γ between two ranks; made with 2α = 12 µs and β + γ/2 = 0.25 ns."""
    found = bout().communication
    assert found is not None

    model = models_of(found)["mpi", "allreduce"]

    assert model.alpha_s == pytest.approx(6e-6, rel=0.1)
    per_byte = model.beta_s_per_byte + (model.gamma_s_per_byte or 0.0) / 2
    assert per_byte == pytest.approx(0.25e-9, rel=0.1)


def test_bytes_of_an_arm_are_predicted_and_counted() -> None:
    """Two ranks of a ring send 2·(1/2)·gradients each; 8.3 bytes a weight were counted."""
    section = bout_view().section("communication")
    rows = {row[0].main: row for row in tables(*section.blocks)["Communication of each arm"].rows}

    gradients, predicted, counted = (cell.main for cell in rows["horovod ×2"][1:4])
    assert gradients == f"{4 * PARAMETERS:,}"
    assert predicted == f"{2 * 4 * PARAMETERS:,}"
    assert int(counted.replace(",", "")) == pytest.approx(8.3 * PARAMETERS, rel=1e-3)
    assert rows["mirrored ×2"][2].note == "one process: nothing is sent"
    assert rows["parameter_server ×2"][2].main == f"{2 * 2 * 4 * PARAMETERS:,}"
    assert rows["parameter_server ×2"][2].note == "push and pull"


@pytest.mark.parametrize(("names", "predicted"), [((), True), (("one", "two"), False)])
def test_workers_beside_their_server_have_no_predicted_time(
    names: tuple[str, ...], predicted: bool
) -> None:
    """The model assumes workers on other hosts; for a ring that makes no difference."""
    comparison = bout()
    assert comparison.communication is not None
    mpi = comparison.communication.stacks[0]
    push = [
        one.replace(operation="push_pull") for one in mpi.timings if one.operation == "allreduce"
    ]
    servers = mpi.replace(stack="parameter_server", timings=tuple(push))
    comparison = comparison.replace(
        communication=comparison.communication.replace(
            stacks=(*comparison.communication.stacks, servers)
        ),
        hosts=tuple(Host(name=name) for name in names),
        certificates=(),
    )

    section = communication_section(comparison, bout_view().summary, None)

    rows = {row[0].main: row for row in tables(*section.blocks)["Communication of each arm"].rows}
    assert (rows["parameter_server ×2"][4].main != "–") == predicted
    if not predicted:
        assert rows["parameter_server ×2"][4].note == "some workers are on their server's host"
    assert rows["horovod ×2"][4].main != "–"


def test_stack_that_cannot_run_is_a_line_with_the_reason() -> None:
    """It has no number."""
    section = bout_view().section("communication")
    rows = {r[0].main: r for r in tables(*section.blocks)["Cost models of the collectives"].rows}

    row = rows["horovod nccl"]

    assert (row[1].main, row[1].note) == ("–", "refused: needs an NVIDIA GPU: none is found")
    assert {cell.main for cell in row[2:]} == {"–"}


def test_between_hosts_the_link_is_told() -> None:
    """Each link is shown, and each time with the least that the slowest link allows."""
    comparison = bout()
    assert comparison.communication is not None
    links = tuple(
        Link(sender=a, receiver=b, tool="tcp", bytes=rate, seconds=8.0)
        for a, b, rate in (("one", "two", 4 * 10**9), ("two", "one", 3 * 10**9))
    )
    found = comparison.communication.replace(hosts=("one", "two"), links=links)

    section = communication_section(comparison.replace(communication=found), judged(), None)

    said = " ".join(block.text for block in section.blocks if isinstance(block, Text))
    assert "one to two 4 Gbit/s; two to one 3 Gbit/s" in said
    (folded,) = (block for block in section.blocks if isinstance(block, Folded))
    table = tables(*folded.blocks)["Every size of every collective"]
    (column,) = (i for i, one in enumerate(table.columns) if one.name == "Of the link")
    timing = found.stacks[0].timings[8]
    slowest = statistics.median(max(ranks) for ranks in timing.seconds)
    # Between two: as many bytes as the array has, over the slower link.
    percent = 100 * 8 * timing.size_bytes / 3e9 / slowest
    assert table.rows[8][column].main.split() == [f"{percent:.0f}", "%"]
    assert table.rows[8][column].bad == (percent > 105)


def test_wrong_elements_are_shouted() -> None:
    """A collective with wrong results is no collective."""
    comparison = bout()
    assert comparison.communication is not None
    stack = comparison.communication.stacks[0]
    broken = stack.timings[0].replace(wrong=3)
    stacks = (
        stack.replace(timings=(broken, *stack.timings[1:])),
        *comparison.communication.stacks[1:],
    )
    found = comparison.communication.replace(stacks=stacks)

    section = communication_section(bare().replace(communication=found), judged(), None)

    assert "3 ELEMENTS WERE WRONG" in section.answer
    assert not section.sure


def test_every_operation_is_drawn() -> None:
    """Each in its own part, under the name that the tables use."""
    svg = bout_plots()["communication"].svg

    assert ">all-reduce<" in svg and ">broadcast<" in svg
    assert ">bare MPI<" in svg and ">mpi<" not in svg


def test_two_sizes_never_have_the_same_name_on_the_axis() -> None:
    """Sizes are the user's choice: 256 KiB + 4 B is not 256 KiB."""
    found = bout().communication
    assert found is not None
    other = {65_536: 262_140, 1_048_576: 262_148}
    stacks = tuple(
        stack.replace(
            timings=tuple(
                timing.replace(size_bytes=other.get(timing.size_bytes, timing.size_bytes))
                for timing in stack.timings
            )
        )
        for stack in found.stacks
    )

    svg = communication_plot(found.replace(stacks=stacks)).svg

    assert ">262,140 B<" in svg and ">262,148 B<" in svg
