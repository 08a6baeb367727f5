"""Arms on the hosts of a hostfile: which have room there, and whether the hosts are as before."""

from collections.abc import Iterable, Mapping, Sequence

from launch import Placement
from launch.placement import slots_used
from ringside.stats.links import link_words, links_by_pair, same_link
from ringside_core.specs import (
    Arm,
    Comparison,
    Link,
    NotRun,
    RefusalError,
    RunSpec,
    assign_slots,
)


def placement_of(comparison: Comparison) -> Placement:
    """Where the runs of a comparison go."""
    return Placement(
        hosts=comparison.hosts or None,
        interface=comparison.interface,
        servers_on=comparison.servers_on,
        oversubscribe=comparison.oversubscribe,
    )


def all_slots(placement: Placement) -> int:
    """Replicas for which there is room on the hosts; 0: there is no hostfile."""
    return sum(host.slots for host in placement.hosts or ())


def fullest(specs: Iterable[RunSpec], placement: Placement) -> dict[str, int]:
    """The most replicas that one of the runs has on each host; hosts without any are left out."""
    most: dict[str, int] = {}
    for spec in specs:
        for name, slots in slots_used(spec, placement).items():
            most[name] = max(slots, most.get(name, 0))
    return most


def used_hosts(specs: Iterable[RunSpec], placement: Placement) -> Placement:
    """The placement without hosts on which none of the runs has anything."""
    used = {*fullest(specs, placement), *placement.servers_on}
    return placement.replace(
        hosts=tuple(host for host in placement.hosts or () if host.name in used)
    )


def with_room(
    arms: tuple[Arm, ...], placement: Placement
) -> tuple[tuple[Arm, ...], tuple[NotRun, ...]]:
    """The arms that the hosts have room for, and the others with the reason.

    A process that holds all replicas must find them on the first host, where the serial reference
    is: on another one it would be compared across machines.

    Raises:
        RefusalError: more replicas than slots, or no arm but the reference has room.
    """
    if placement.hosts is None:
        return arms, ()
    assign_slots(placement.hosts, max(arm.replicas for arm in arms))
    first = placement.hosts[0]
    able, unable = [], []
    for arm in arms:
        if arm.capabilities.process_model == "single" and arm.replicas > first.slots:
            told = "slot" if first.slots == 1 else "slots"
            reason = (
                f"its {arm.replicas} replicas are in one process, and {first.name}, the first "
                f"host, has {first.slots} {told}"
            )
            unable.append(NotRun(label=arm.label, reason=reason))
        else:
            able.append(arm)
    if unable and all(arm.capabilities.family == "none" for arm in able):
        raise RefusalError(
            "At least one arm beside the reference must have room on the hosts.",
            received="; ".join(f"{arm.label}: {arm.reason}" for arm in unable),
            advice="Choose backends that reach over hosts, or fewer --replicas.",
        )
    return tuple(able), tuple(unable)


def refuse_fewer_cores(
    comparison: Comparison, most: Mapping[str, int], cores: Mapping[str, int]
) -> None:
    """Refuse hosts that have too few cores now for the share that each replica was given.

    Args:
        comparison: that goes on.
        most: replicas on each host, see `fullest`.
        cores: usable ones of each host now, by its name.

    Raises:
        RefusalError: replicas would share cores, which they did not before.
    """
    each = comparison.base.resources.cores_per_replica if comparison.base else None
    if each is None or comparison.oversubscribe:
        return
    few = [
        f"{name} has {cores[name]} for {replicas} × {each}"
        for name, replicas in most.items()
        if cores[name] < replicas * each
    ]
    if few:
        raise RefusalError(
            "A comparison goes on with the cores with which it began.",
            received=f"usable cores of hosts: {'; '.join(few)}",
            advice="Give the hosts their cores back, or start a new comparison.",
        )


def refuse_other_links(before: Sequence[Link], now: Sequence[Link]) -> None:
    """Refuse to mix rounds over links that carry something else now.

    Args:
        before: as they were when the comparison began.
        now: the same links.

    Raises:
        RefusalError: with both rates of each that changed.
    """
    today = links_by_pair(now)
    changed = []
    for link in before:
        found = today.get((link.sender, link.receiver))
        if found is None or not same_link(link, found):
            is_now = "unknown" if found is None else link_words(found)
            changed.append(
                f"{link.sender} → {link.receiver} is {is_now}, and it was {link_words(link)}"
            )
    if changed:
        raise RefusalError(
            "A comparison goes on with links that carry what they did when it began.",
            received="; ".join(changed),
            advice="Go on when the network is as it was, or start a new comparison.",
        )
