"""Which links are the same, and which share of one an all-reduce reaches, against closed forms."""

import pytest

from ringside.stats.links import (
    link_words,
    links_by_pair,
    share_of_link,
    slowest_bits_per_s,
)
from ringside_core.specs import Timing
from tests.unit.stats.factory import link

MIB = 2**20


@pytest.mark.parametrize(
    ("hosts", "ranks", "steps_of_bytes"),
    [
        (4, 4, [16 * MIB] * 6),  # 2(4−1) steps of a ring, a quarter of 64 MiB through every link
        (2, 2, [32 * MIB] * 2),
        (2, 4, [32 * MIB] * 2),  # ranks of one host share its link
    ],
)
def test_a_perfect_ring_is_all_of_the_link(
    hosts: int, ranks: int, steps_of_bytes: list[int]
) -> None:
    """64 MiB at 1 Gbit/s, by steps; half the speed is half the link."""
    seconds = sum(8 * count / 1e9 for count in steps_of_bytes)
    timing = Timing(size_bytes=64 * MIB, seconds=((seconds,) * ranks,), wrong=0)
    slower = timing.replace(seconds=((2 * seconds,) * ranks,))

    assert share_of_link(timing, num_hosts=hosts, bits_per_s=1e9) == pytest.approx(1.0)
    assert share_of_link(slower, num_hosts=hosts, bits_per_s=1e9) == pytest.approx(0.5)


def test_rates_of_each_direction() -> None:
    """Of each; and of all the slowest."""
    links = [link("a", "b", 300), link("b", "a", 200)]

    found = {pair: one.bits_per_s for pair, one in links_by_pair(links).items()}

    assert found == {("a", "b"): 300e6, ("b", "a"): 200e6}
    assert slowest_bits_per_s(links) == 200e6
    assert slowest_bits_per_s([]) is None
    cubic = link("a", "b", 1000).replace(congestion_control="cubic")
    assert link_words(cubic) == "1 Gbit/s (cubic)"
    assert link_words(link("a", "b", 10)) == "10 Mbit/s"
