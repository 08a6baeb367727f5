"""The hosts that a run uses, and how many processes it has on each."""

from collections.abc import Mapping

from ringside_core.specs import Host, Placement, RefusalError, RunSpec, Topology, assign_slots


def place(topology: Topology, placement: Placement) -> tuple[Host, ...]:
    """The hosts that are used, with the number of processes on each.

    A topology with one host fills the hosts in hostfile order. A topology with several hosts takes
    that many hosts, with the same number of processes on each.

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
    """Cores for each replica, the same on every host, so that each host has enough; at least one.

    Args:
        most: replicas on each host, by name.
        cores: usable cores of each host, by name.
    """
    return max(1, min(cores[name] // replicas for name, replicas in most.items()))
