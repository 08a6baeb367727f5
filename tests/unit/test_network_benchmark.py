"""What the benchmark of the network calls the best setting of a stack."""

import pytest

from benchmarks import network
from ringside_core.specs import Timing

BITS_PER_S = 8 * 2.0**20  # an array of 1 MiB takes a second between two hosts, at least


def line(stack: str, seconds: float, wrong: int = 0) -> network.Line:
    """Of two hosts."""
    timing = Timing(
        operation="allreduce", size_bytes=2**20, seconds=((seconds,) * 2,) * 3, wrong=wrong
    )
    return network.Line("8mbit", 2, 0.5, stack, timing, BITS_PER_S)


def test_only_what_is_right_and_possible_is_the_best(capsys: pytest.CaptureFixture[str]) -> None:
    """A line faster than the link, or with a wrong element, is marked and not chosen."""
    lines = [
        line("mpi", 1.25),
        line("mpi:btl_tcp_flags=9", 1 / 0.95),
        line("mpi:btl_tcp_flags=1", 0.9),
        line("mpi:btl_tcp_flags=8", 1.0, wrong=1),
        line("horovod gloo", 0.5),
    ]

    network._print_best(lines)

    said = capsys.readouterr().out.splitlines()[2:]
    assert said == [
        "| 8mbit | 2 | bare MPI | btl_tcp_flags=9 | 95% | yes |",
        "| 8mbit | 2 | horovod gloo | – | – | no: nothing sound was measured |",
    ]
    cells = [one.cells() for one in lines]
    assert [one[6] for one in cells] == ["80%", "95%", "111% ?", "100%", "200% ?"]
    assert [one[8] for one in cells] == ["0", "0", "0", "**1**", "0"]
    assert cells[0][5] == f"{BITS_PER_S / 1.25 / 1e9:.3g}"


def test_a_push_and_pull_has_no_bus_bandwidth() -> None:
    """nccl-tests defines none for it."""
    one = line("parameter_server", 1.0)
    timing = one.timing.replace(operation="push_pull", seconds=((2.0,),) * 3)

    cells = network.Line("8mbit", 2, 0.5, "parameter_server", timing, BITS_PER_S).cells()

    assert (cells[5], cells[6]) == ("–", "100%")


def test_all_columns_are_of_one_time() -> None:
    """Even if ranks are slow in turn: 1.2 s is the median of the slowest."""
    one = line("mpi", 1.0)
    timing = one.timing.replace(seconds=((1.0, 1.2), (1.25, 1.0), (1.0, 1.1)))

    cells = network.Line("8mbit", 2, 0.5, "mpi", timing, BITS_PER_S).cells()

    assert (cells[4], cells[6]) == ("1200.0", f"{1 / 1.2:.0%}")
    assert cells[5] == f"{BITS_PER_S / 1.2 / 1e9:.3g}"
