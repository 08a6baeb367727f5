"""Where the ranks of all stacks are: on this machine, or on the hosts of a placement."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from launch.placement import cores_each, place
from launch.remote.host_checks import HostFacts
from ringside.collectives.stacks import options_of, stack_of
from ringside_core.readings.cores import whole_cores
from ringside_core.specs import Host, Link, Resources, RunSpec, Topology, assign_slots
from ringside_core.specs.placement import THIS_MACHINE, Placement, spread


@dataclass(frozen=True)
class Place:
    """Ranks and hosts; every stack has the same.

    Attributes:
        ranks: processes.
        placement: only the hosts that the ranks use; or this machine.
        cores: usable cores of the host that has the fewest.
        links: from each host to the next; empty on this machine.
        facts: of each of the hosts; empty on this machine.
    """

    ranks: int
    placement: Placement
    cores: int
    links: tuple[Link, ...] = ()
    facts: Mapping[str, HostFacts] = field(default_factory=dict)

    @classmethod
    def here(cls, ranks: int) -> Self:
        """All on this machine."""
        return cls(ranks, THIS_MACHINE, whole_cores())

    @classmethod
    def on_hosts(cls, ranks: int, placement: Placement, facts: Mapping[str, HostFacts]) -> Self:
        """On the first hosts of a placement; their slots are filled in order.

        Raises:
            RefusalError: fewer slots than ranks.
        """
        used = filled(placement, ranks)
        found = {name: facts[name] for name in used.names}
        return cls(ranks, used, min(one.cores for one in found.values()), facts=found)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The host of each rank; empty: all on this machine."""
        return hosts_of_ranks(self.placement, self.ranks)

    @property
    def addresses(self) -> dict[str, str]:
        """IPv4 address of each host."""
        return {name: one.address for name, one in self.facts.items()}

    @property
    def cores_of_hosts(self) -> dict[str, int]:
        """Usable cores of each host."""
        return {name: one.cores for name, one in self.facts.items()}

    def of_stack(self, name: str) -> tuple[RunSpec, Placement]:
        """The run that places the processes of a stack, and where it goes.

        It trains nothing. Each rank is pinned to its share of its host's cores, by the same rule
        under every stack. With several hosts, the last one serves parameters and the workers are on
        the others: a parameter server on its only worker's host would not use the link.
        """
        placement, ranks = self.placement, self.ranks
        hosts = placement.hosts or ()
        if stack_of(name).family == "parameter_server" and len(hosts) > 1:
            ranks -= hosts[-1].slots
            placement = placement.replace(servers_on=(hosts[-1].name,))
        topology = spread(Topology(processes_per_host=ranks), placement)
        share = self._cores_of_a_rank()
        spec = RunSpec(
            backend=stack_of(name).backend,
            options=options_of(name),
            topology=topology,
            global_batch=ranks,
            epochs=1,
            save="record",
            resources=Resources(
                cores_per_replica=share, intra_op_threads=share, inter_op_threads=2
            ),
        )
        return spec, placement

    def _cores_of_a_rank(self) -> int:
        """Cores of each rank, the same for all.

        A host that we did not ask is assumed to have as many cores as the smallest one asked.
        """
        used = place(Topology(processes_per_host=self.ranks), self.placement)
        cores = {host.name: self.cores for host in used} | self.cores_of_hosts
        return cores_each({host.name: host.slots for host in used}, cores)


def hosts_of_ranks(placement: Placement, ranks: int) -> tuple[str, ...]:
    """The host of each rank; empty: all on this machine."""
    hosts = filled(placement, ranks).hosts if placement.hosts else None
    return tuple(host.name for host in hosts or () for _ in range(host.slots))


def filled(placement: Placement, ranks: int) -> Placement:
    """The placement, with only the hosts and slots that this number of ranks uses."""
    hosts: tuple[Host, ...] = assign_slots(placement.hosts or (), ranks)
    return placement.replace(hosts=hosts)
