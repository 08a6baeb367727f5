"""Which share of a link a collective reaches, against closed forms."""

from typing import Literal

import pytest

from ringside.stats.links import (
    least_seconds,
    links_by_pair,
    same_link,
    same_rate,
    share_of_link,
    slowest_bits_per_s,
)
from ringside_core.specs import Link, RefusalError, Timing

MIB = 2**20


def test_a_perfect_ring_is_all_of_the_link() -> None:
    """64 MiB among 4 hosts at 1 Gbit/s: 3/4 of it twice, 0.805 s.

    By steps: 2(4−1) = 6 steps, each of 16 MiB through every link at once.
    """
    steps = sum(8 * 16 * MIB / 1e9 for _ in range(6))

    least = least_seconds("allreduce", 64 * MIB, num_ranks=4, num_hosts=4, bits_per_s=1e9)

    assert least == pytest.approx(steps)


def test_the_bus_bandwidth_over_the_links_is_the_share() -> None:
    """By hand: 64 MiB between two hosts in 0.88 s are 0.61 Gbit/s, of 0.96."""
    timing = Timing(operation="allreduce", size_bytes=64 * MIB, seconds=((0.88, 0.88),), wrong=0)

    share = share_of_link(timing, num_hosts=2, bits_per_s=0.96e9)

    assert share == pytest.approx(64 * MIB * 8 / 0.88 / 0.96e9)
    assert share == pytest.approx(0.635, abs=0.001)


def test_the_slowest_rank_counts() -> None:
    """The root of a broadcast ends when its buffers are full; the other takes 1, 3, 2 s."""
    rows = ((0.001, 1.0), (0.001, 3.0), (0.001, 2.0))
    timing = Timing(operation="broadcast", size_bytes=125_000_000, seconds=rows, wrong=0)

    assert share_of_link(timing, num_hosts=2, bits_per_s=1e9) == pytest.approx(0.5)


@pytest.mark.parametrize(("workers", "least_s"), [(1, 2.0), (2, 3.0), (3, 4.0)])
def test_a_server_sends_to_each_worker(workers: int, least_s: float) -> None:
    """1 s for each copy that leaves the server, and 1 s for the last worker's gradient."""
    least = least_seconds(
        "push_pull", 125_000_000, num_ranks=workers, num_hosts=workers + 1, bits_per_s=1e9
    )

    assert least == pytest.approx(least_s)


def test_ranks_of_one_host_share_its_link() -> None:
    """Two hosts with two ranks each need what two with one rank each need."""
    four = least_seconds("allreduce", MIB, num_ranks=4, num_hosts=2, bits_per_s=1e6)
    two = least_seconds("allreduce", MIB, num_ranks=2, num_hosts=2, bits_per_s=1e6)

    assert four == two


def link(
    tool: Literal["tcp", "iperf3"], count: int, sender: str = "a", receiver: str = "b"
) -> Link:
    """So many bytes came in two seconds."""
    return Link(sender=sender, receiver=receiver, tool=tool, bytes=count, seconds=2.0)


def test_the_slowest_link_by_plain_tcp() -> None:
    """iperf3's value is shown beside it."""
    found = slowest_bits_per_s([link("tcp", 300), link("tcp", 200), link("iperf3", 100)])

    assert found == 800.0
    assert slowest_bits_per_s([]) is None


def test_rates_of_each_direction_by_plain_tcp() -> None:
    """8 bits × 300 bytes in 2 s are 1200 bit/s."""
    links = [link("tcp", 300), link("iperf3", 100), link("tcp", 200, "b", "a")]

    found = {pair: one.bits_per_s for pair, one in links_by_pair(links).items()}
    assert found == {("a", "b"): 1200.0, ("b", "a"): 800.0}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (100.0, 109.9, True),
        (100.0, 110.1, False),
        (100.0, 91.0, True),  # 100 is 9.9 % above it
        (100.0, 90.8, False),  # 9.2 % below 100, which is 10.1 % above it
    ],
)
def test_one_link_may_differ_by_a_tenth(one: float, other: float, same: bool) -> None:
    """Of the smaller rate, in either order."""
    assert same_rate(one, other) is same
    assert same_rate(other, one) is same


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("cubic", "cubic", True), ("cubic", "bbr", False), ("", "bbr", True), ("cubic", "", True)],
)
def test_one_link_has_one_congestion_control(one: str, other: str, same: bool) -> None:
    """If both are known."""
    measured = link("tcp", 300)

    first, second = (measured.replace(congestion_control=name) for name in (one, other))

    assert same_link(first, second) is same


def test_one_host_has_no_share() -> None:
    """Nor has a link without a rate."""
    timing = Timing(operation="allreduce", size_bytes=4, seconds=((1.0, 1.0),), wrong=0)

    for hosts, rate in ((1, 1e9), (2, 0.0), (2, float("inf"))):
        with pytest.raises(RefusalError, match="two hosts and a rate"):
            share_of_link(timing, num_hosts=hosts, bits_per_s=rate)
