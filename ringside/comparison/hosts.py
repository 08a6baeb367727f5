"""Arms on the hosts of a hostfile: which have room, which hosts are ready, what links carry."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from launch import Site
from launch.placement import slots_used
from launch.remote.host_checks import HostFacts, check_hosts
from ringside.collectives.link import measure_links
from ringside.collectives.measurement import hosts_of_ranks
from ringside.collectives.store import find_communication
from ringside_core.specs import (
    Arm,
    Communication,
    Link,
    NotRun,
    Placement,
    RefusalError,
    RunSpec,
    assign_slots,
)
from ringside_core.text import plural

LINK_S = 1.0  # to measure each link, before the first run and after the last


def all_slots(placement: Placement) -> int:
    """Replicas that the hosts have room for; 0: there is no hostfile."""
    return sum(host.slots for host in placement.hosts or ())


def fullest(specs: Iterable[RunSpec], placement: Placement) -> dict[str, int]:
    """The most replicas that any of the runs has on each host; unused hosts are left out."""
    most: dict[str, int] = {}
    for spec in specs:
        for name, slots in slots_used(spec, placement).items():
            most[name] = max(slots, most.get(name, 0))
    return most


def used_hosts(specs: Iterable[RunSpec], placement: Placement) -> Placement:
    """The placement without the hosts that no run uses."""
    used = {*fullest(specs, placement), *placement.servers_on}
    return placement.replace(
        hosts=tuple(host for host in placement.hosts or () if host.name in used)
    )


def with_room(
    arms: tuple[Arm, ...], placement: Placement
) -> tuple[tuple[Arm, ...], tuple[NotRun, ...]]:
    """The arms that the hosts have room for, and the others with the reason.

    One process that holds all replicas must fit on the first host, where the serial reference runs.
    On another host the two would be compared across machines.

    Raises:
        RefusalError: more replicas than slots, or only the reference has room.
    """
    if placement.hosts is None:
        return arms, ()
    assign_slots(placement.hosts, max(arm.replicas for arm in arms))
    first = placement.hosts[0]
    able, unable = [], []
    for arm in arms:
        if arm.capabilities.process_model == "single" and arm.replicas > first.slots:
            reason = (
                f"its {arm.replicas} replicas are in one process, and {first.name}, the first "
                f"host, has {plural(first.slots, 'slot')}"
            )
            unable.append(NotRun(label=arm.label, reason=reason))
        else:
            able.append(arm)
    if unable and all(arm.capabilities.family == "none" for arm in able):
        raise RefusalError(
            "At least one arm besides the reference must have room on the hosts.",
            received="; ".join(f"{arm.label}: {arm.reason}" for arm in unable),
            advice="Choose backends that can use several hosts, or fewer --replicas.",
        )
    return tuple(able), tuple(unable)


def ready_hosts(
    specs: Sequence[RunSpec], placement: Placement, folder: Path
) -> dict[str, HostFacts]:
    """Ask each host that one of the runs uses for its cores, address and interface.

    Raises:
        RefusalError: some hosts are not ready; the message has all reasons.
    """
    return check_hosts(used_hosts(specs, placement), Site.here(), folder=folder, specs=specs)


def links_between(
    console: Console, placement: Placement, used: Mapping[str, str]
) -> tuple[Link, ...]:
    """Measure the links between the used hosts (addresses by name); empty if one carries nothing.

    A dead link is reported, not refused: the runs over it then fail with their own outcome.
    """
    addresses = {name: used[name] for name in placement.names if name in used}
    with console.status("measuring the links…"):
        try:
            return measure_links(addresses, Site.here(), seconds=LINK_S)
        except RefusalError as error:
            console.print(f"[yellow]links not measured[/] {error}", highlight=False)
            return ()


def kept_communication(
    placement: Placement,
    arms: Iterable[Arm],
    facts: Mapping[str, HostFacts],
    links: tuple[Link, ...],
) -> Communication | None:
    """Kept times of all-reduces on these hosts, with as many ranks as the largest arm."""
    used = tuple(host for host in placement.hosts or () if host.name in facts)
    most = max(arm.replicas for arm in arms)
    return find_communication(
        hosts_of_ranks(placement.replace(hosts=used), most) if used else (), links, facts
    )
