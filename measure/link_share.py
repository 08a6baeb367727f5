"""A collective against the link below it: which share of what the link carries it reaches."""

import math
import statistics
from collections.abc import Sequence

from specs import Link, RefusalError, Timing
from specs.communication import Operation

# More is no measurement: the link was not the one that was measured, or its rate has changed.
IMPOSSIBLE = 1.05


def slowest_bits_per_s(links: Sequence[Link]) -> float | None:
    """What the slowest of the links carries by plain TCP, in bit/s; None: none is known."""
    return min((link.bits_per_s for link in links if link.tool == "tcp"), default=None)


def least_seconds(
    operation: Operation, size_bytes: int, *, num_ranks: int, num_hosts: int, bits_per_s: float
) -> float:
    """No stack can be faster, whatever it does: seconds until the slowest rank is through.

    Every host has one link that carries `bits_per_s` each way at once; within a host nothing costs
    time. For an array of n bytes and B = bits_per_s / 8:

    allreduce: 2(H−1)/H · n/B. Each of H hosts must send (H−1)/H of the sum of what the others need,
    and get as much twice (Patarasuk, Yuan 2009, "Bandwidth optimal all-reduce algorithms for
    clusters of workstations"). With one rank a host it is size ÷ bus bandwidth of nccl-tests.
    broadcast: n/B, once through the link of every host.
    push_pull: (p+1) · n/B for p workers of one server on a host of its own. The server sends the
    variable p times; the worker that has it last sends its gradient after that.
    """
    seconds = 8 * size_bytes / bits_per_s
    if operation == "allreduce":
        return 2 * (num_hosts - 1) / num_hosts * seconds
    if operation == "broadcast":
        return seconds
    return (num_ranks + 1) * seconds


def share_of_link(timing: Timing, *, num_hosts: int, bits_per_s: float) -> float:
    """`least_seconds` ÷ what the slowest rank took, of which the median over the repetitions.

    Of an all-reduce with one rank a host it is bus bandwidth ÷ bandwidth of the link.

    Args:
        timing: of one operation at one size.
        num_hosts: of all ranks; two at least.
        bits_per_s: what the slowest link carries, measured by a plain transfer.
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
