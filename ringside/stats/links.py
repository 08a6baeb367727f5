"""Links: what they carry, whether two are the same, and which share of one a collective reaches."""

import math
import statistics
from collections.abc import Iterable, Sequence

from ringside_core.specs import Link, RefusalError, Timing
from ringside_core.specs.communication import Operation

# A larger share is wrong: another link was measured, or the rate of the link has changed.
IMPOSSIBLE = 1.05
# A link may differ by this and still be the same; two measurements of one link differ by 5 %.
SAME_LINK = 0.10


def same_rate(one: float, other: float) -> bool:
    """Whether one link may have carried both: the larger is at most 10 % above the smaller.

    So the order of the two measurements does not matter. Both are in bit/s, or in any one unit.
    """
    return max(one, other) <= (1 + SAME_LINK) * min(one, other)


def same_link(one: Link, other: Link) -> bool:
    """Whether two measurements may be of one link: same rate and same congestion control of TCP.

    Another congestion control shares and fills the same rate in another way. If it was not
    recorded, it may be the same.
    """
    same_control = len(congestion_controls((one, other))) <= 1
    return same_rate(one.bits_per_s, other.bits_per_s) and same_control


def congestion_controls(links: Iterable[Link]) -> list[str]:
    """The congestion controls of TCP on these links, each once; empty ones are left out."""
    return sorted({one.congestion_control for one in links} - {""})


def links_by_pair(links: Iterable[Link]) -> dict[tuple[str, str], Link]:
    """Each link that was measured by plain TCP, by its sender and receiver."""
    return {(one.sender, one.receiver): one for one in links if one.tool == "tcp"}


def link_words(link: Link) -> str:
    """`0.957 Gbit/s (cubic)`; without the control if it was not recorded."""
    control = f" ({link.congestion_control})" if link.congestion_control else ""
    return f"{rate_words(link.bits_per_s)}{control}"


def rate_words(bits_per_s: float) -> str:
    """`0.957 Gbit/s`, `9.57 Mbit/s`."""
    if bits_per_s < 1e8:
        return f"{bits_per_s / 1e6:.3g} Mbit/s"
    return f"{bits_per_s / 1e9:.3g} Gbit/s"


def slowest_bits_per_s(links: Sequence[Link]) -> float | None:
    """What the slowest link carries by plain TCP, in bit/s; None: no link was measured."""
    return min((link.bits_per_s for link in links if link.tool == "tcp"), default=None)


def fastest_bits_per_s(links: Sequence[Link]) -> float | None:
    """What the fastest link carries by plain TCP, in bit/s; None: no link was measured."""
    return max((link.bits_per_s for link in links if link.tool == "tcp"), default=None)


def least_seconds(
    operation: Operation, size_bytes: int, *, num_ranks: int, num_hosts: int, bits_per_s: float
) -> float:
    """The lower bound for every stack: seconds until the slowest rank has finished.

    Every host has one link that carries `bits_per_s` in both directions at once. Within a host
    nothing costs time. For an array of n bytes and B = bits_per_s / 8:

    allreduce: 2(H−1)/H · n/B. Each of H hosts must send at least 2(H−1)/H · n bytes (Patarasuk,
    Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations"). With one
    rank on each host it is size ÷ bus bandwidth of nccl-tests.
    broadcast: n/B, once through the link of every host.
    push_pull: (p+1) · n/B for p workers and one server that is alone on its host. The server sends
    the variable p times; the worker that gets it last sends its gradient after that.
    """
    seconds = 8 * size_bytes / bits_per_s
    if operation == "allreduce":
        return 2 * (num_hosts - 1) / num_hosts * seconds
    if operation == "broadcast":
        return seconds
    return (num_ranks + 1) * seconds


def share_of_link(timing: Timing, *, num_hosts: int, bits_per_s: float) -> float:
    """`least_seconds` ÷ the time of the slowest rank (the median over the repetitions).

    For an all-reduce with one rank on each host it is bus bandwidth ÷ bandwidth of the link.

    Args:
        timing: of one operation at one size.
        num_hosts: of all ranks; at least two.
        bits_per_s: what the slowest link carries, measured by a plain transfer.

    Raises:
        RefusalError: fewer than two hosts, or a rate that is not above 0.
    """
    if num_hosts < 2 or not math.isfinite(bits_per_s) or bits_per_s <= 0:
        raise RefusalError(
            "A share of a link needs two hosts and a rate.",
            received=f"{num_hosts} hosts, {bits_per_s} bit/s",
        )
    least = least_seconds(
        timing.operation,
        timing.size_bytes,
        num_ranks=timing.num_ranks,
        num_hosts=num_hosts,
        bits_per_s=bits_per_s,
    )
    return least / statistics.median(max(ranks) for ranks in timing.seconds)
