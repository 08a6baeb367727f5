"""Placement: the hosts that a run may use."""

from typing import Self

from pydantic import model_validator

from ringside_core.specs.errors import RefusalError
from ringside_core.specs.hostfile import Host, assign_slots
from ringside_core.specs.noun import Noun
from ringside_core.specs.topology import Topology


class Placement(Noun):
    """The hosts that a run may use, and how they are connected.

    Attributes:
        hosts: hosts of the replicas, in this order; None: this machine, with room for all.
        interface: name of the network interface that all stacks use, the same on every host; None:
            the one by which this machine reaches the hosts.
        servers_on: hosts of parameter servers; empty: all used hosts in turn.
        oversubscribe: allow more replicas on a host than it has cores.
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
                "Parameter servers need hosts of the hostfile.",
                received=f"--servers-on {','.join(unknown)}",
                advice=f"Hosts there: {', '.join(self.names)}." if known else "Add --hostfile.",
            )
        if self.hosts is None and self.interface is not None:
            raise RefusalError(
                "--interface needs a hostfile.",
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


def spread(topology: Topology, placement: Placement) -> Topology:
    """The topology on the hosts of the hostfile, filled in hostfile order.

    If each host gets the same number of processes, the topology names that number and the hosts.
    Otherwise it keeps `hosts=1`; the launcher then fills the hosts in hostfile order.
    """
    if placement.hosts is None or topology.hosts > 1 or topology.replicas_per_process > 1:
        return topology
    used = assign_slots(placement.hosts, topology.num_processes)
    if len({host.slots for host in used}) > 1:
        return topology
    return Topology(hosts=len(used), processes_per_host=used[0].slots)
