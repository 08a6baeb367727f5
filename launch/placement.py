"""Where a run goes: the hosts of a hostfile, and how many processes on each."""

from collections.abc import Mapping
from typing import Self

from pydantic import model_validator

from ringside_core.specs import (
    Host,
    Noun,
    RefusalError,
    RunSpec,
    Topology,
    assign_slots,
)


class Placement(Noun):
    """Where a run goes, beyond what its spec says.

    Attributes:
        hosts: where the replicas go, in this order; None: this machine, with room for all.
        interface: name of the network interface that all stacks use, the same on every host; None:
            that by which this machine reaches the hosts.
        servers_on: hosts of parameter servers; empty: they take turns over the hosts used.
        oversubscribe: more replicas than cores on a host is meant.
    """

    hosts: tuple[Host, ...] | None = None
    interface: str | None = None
    servers_on: tuple[str, ...] = ()
    oversubscribe: bool = False

    @model_validator(mode="after")
    def _is_about_hosts(self) -> Self:
        known = {host.name for host in self.hosts or ()}
        unknown = [name for name in self.servers_on if name not in known]
        if unknown:
            raise RefusalError(
                "Parameter servers go to hosts of the hostfile.",
                received=f"--servers-on {','.join(unknown)}",
                advice=f"Hosts there: {', '.join(self.names)}." if known else "Add --hostfile.",
            )
        if self.hosts is None and self.interface is not None:
            raise RefusalError(
                "--interface is of runs on several hosts.",
                received=f"--interface {self.interface}",
                advice="Add --hostfile.",
            )
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The hosts by name; empty: this machine."""
        return tuple(host.name for host in self.hosts or ())


# Immutable, so it may be a default argument.
THIS_MACHINE = Placement()


def place(topology: Topology, placement: Placement) -> tuple[Host, ...]:
    """The hosts that are used, with the number of processes on each.

    A topology of one host fills the hostfile in its order; one of several takes that many hosts,
    and the same number of processes on each.

    Raises:
        RefusalError: more processes than slots.
    """
    hosts = placement.hosts
    if hosts is None:
        if topology.hosts > 1:
            raise RefusalError(
                "A run on several hosts must have a hostfile.", received=f"{topology.hosts} hosts"
            )
        return (Host(name="localhost", slots=topology.num_processes),)
    filled = assign_slots(hosts, topology.num_processes)
    if topology.hosts == 1:
        return filled
    chosen = hosts[: topology.hosts]
    each = topology.processes_per_host
    small = [f"{host.name} ({host.slots})" for host in chosen if host.slots < each]
    if len(chosen) < topology.hosts or small:
        raise RefusalError(
            f"There must be {topology.hosts} hosts with {each} slots each.",
            received=", ".join(small) or f"{len(chosen)} hosts",
            advice="Change the hostfile, or the number of replicas.",
        )
    return tuple(Host(name=host.name, slots=each) for host in chosen)


def place_alone(topology: Topology, placement: Placement) -> Host:
    """The host of a run in one process: the first with a slot for each of its replicas."""
    replicas = topology.num_replicas
    for host in placement.hosts or (Host(name="localhost", slots=replicas),):
        if host.slots >= replicas:
            return Host(name=host.name, slots=1)
    raise RefusalError(
        f"A process with {replicas} replicas must have a host with {replicas} slots.",
        received=", ".join(f"{host.name} ({host.slots})" for host in placement.hosts or ()),
        advice="Change the hostfile, or the number of replicas.",
    )


def slots_used(spec: RunSpec, placement: Placement) -> dict[str, int]:
    """Replicas of a run on each host that it uses."""
    if spec.capabilities.process_model == "single":
        return {place_alone(spec.topology, placement).name: spec.topology.num_replicas}
    return {host.name: host.slots for host in place(spec.topology, placement)}


def cores_each(most: Mapping[str, int], cores: Mapping[str, int]) -> int:
    """Cores for each replica, the same everywhere, so that every host has enough; at least one.

    Args:
        most: replicas on each host, by its name.
        cores: usable ones of each host.
    """
    return max(1, min(cores[name] // replicas for name, replicas in most.items()))


def spread(topology: Topology, placement: Placement) -> Topology:
    """The topology as the hostfile lays it out: several hosts, where all get the same number.

    Slots of a host are filled before those of the next. Where that leaves unequal numbers, the
    topology stays one of one host, which means: filled in order.
    """
    if placement.hosts is None or topology.hosts > 1 or topology.replicas_per_process > 1:
        return topology
    used = assign_slots(placement.hosts, topology.num_processes)
    if len({host.slots for host in used}) > 1:
        return topology
    return Topology(hosts=len(used), processes_per_host=used[0].slots)
