"""Links: what they carry, whether two are the same, which share of one an all-reduce reaches."""

from collections.abc import Iterable, Sequence

from ringside.stats.collectives import mean_seconds
from ringside_core.specs import Link, Timing

IMPOSSIBLE = 1.05  # with a larger share, the link has changed since it was measured
SAME_LINK = 0.10  # by which two measurements of one link may differ; 5 % were seen


def same_rate(one: float, other: float) -> bool:
    """Whether one link may have carried both: the larger is at most 10 % above the smaller."""
    return max(one, other) <= (1 + SAME_LINK) * min(one, other)


def same_link(one: Link, other: Link) -> bool:
    """Whether two measurements may be of one link: same rate and congestion control of TCP.

    Another congestion control shares and fills the same rate in another way.
    """
    same_control = len(congestion_controls((one, other))) <= 1
    return same_rate(one.bits_per_s, other.bits_per_s) and same_control


def congestion_controls(links: Iterable[Link]) -> list[str]:
    """The congestion controls of TCP on these links, each once; empty ones are left out."""
    return sorted({link.congestion_control for link in links} - {""})


def links_by_pair(links: Iterable[Link]) -> dict[tuple[str, str], Link]:
    """Each link by its sender and receiver."""
    return {(link.sender, link.receiver): link for link in links}


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
    """What the slowest link carries, in bit/s; None: no link was measured."""
    return min((link.bits_per_s for link in links), default=None)


def share_of_link(timing: Timing, *, num_hosts: int, bits_per_s: float) -> float:
    """The shortest time that the links allow any all-reduce ÷ its mean time.

    Each of H hosts must send at least 2(H−1)/H · n bytes (Patarasuk, Yuan 2009, "Bandwidth optimal
    all-reduce algorithms for clusters of workstations"), through one link that carries `bits_per_s`
    in both directions at once. With one rank on each host this is bus bandwidth ÷ link.
    """
    least_s = 2 * (num_hosts - 1) / num_hosts * 8 * timing.size_bytes / bits_per_s
    return least_s / mean_seconds(timing)
