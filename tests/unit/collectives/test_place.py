"""Where the ranks of each stack go."""

import pytest

from launch.remote.host_checks import HostFacts
from ringside.collectives.place import Place
from ringside_core.specs import (
    Communication,
    Host,
    Placement,
    RefusalError,
    Timing,
    Topology,
)
from ringside_core.specs.communication import StackTimings
from tests.unit.collectives.test_kept import COMPLETED, of


def facts(cores: int) -> HostFacts:
    """A host with so many cores."""
    return HostFacts(address="", interface="", cores=cores)


def place(*slots: int, ranks: int, cores: int = 2) -> Place:
    """On hosts `a`, `b`, `c`, … with so many slots."""
    hosts = tuple(Host(name=name, slots=n) for name, n in zip("abcd", slots, strict=False))
    found = {host.name: facts(cores) for host in hosts}
    return Place.on_hosts(ranks, Placement(hosts=hosts, interface="eth7"), found)


def test_hosts_are_filled_in_order() -> None:
    """Hosts without a rank are not asked for anything; the interface stays."""
    found = place(2, 2, 2, ranks=4)

    assert found.hosts == ("a", "a", "b", "b")
    assert found.placement.names == ("a", "b") and found.placement.interface == "eth7"
    assert found.cores_of_hosts == {"a": 2, "b": 2}
    spec, placement = found.of_stack("horovod gloo")
    assert placement == found.placement
    assert spec.topology == Topology(hosts=2, processes_per_host=2)
    assert spec.resources.cores_per_replica == 1


@pytest.mark.parametrize(
    ("slots", "cores", "share"),
    [
        ((4, 1), (16, 3), 3),  # 16 / 4 = 4 on a, 3 / 1 = 3 on b
        ((4, 1), (9, 64), 2),  # 9 / 4 = 2.25 on a
        ((1, 2), (2, 8), 2),  # 2 / 1 on a, 8 / 2 on b
        ((3, 1), (2, 8), 1),  # three ranks on two cores
    ],
)
def test_a_rank_gets_what_every_host_has_for_one(
    slots: tuple[int, int], cores: tuple[int, int], share: int
) -> None:
    """With unequal hosts, the one with the fewest cores for each rank decides."""
    hosts = tuple(Host(name=name, slots=n) for name, n in zip("ab", slots, strict=True))
    found = {name: facts(count) for name, count in zip("ab", cores, strict=True)}
    unequal = Place.on_hosts(sum(slots), Placement(hosts=hosts), found)

    for stack in ("mpi", "parameter_server"):
        spec, _ = unequal.of_stack(stack)

        assert spec.resources.cores_per_replica == spec.resources.intra_op_threads == share


def test_ranks_of_this_machine_share_its_cores() -> None:
    """Seven cores for three ranks are two each; each rank has at least one."""
    shares = [
        Place(3, Placement(), cores).of_stack("mpi")[0].resources.cores_per_replica
        for cores in (7, 2)
    ]

    assert shares == [2, 1]


def test_more_ranks_than_slots_are_refused() -> None:
    """The message has both numbers."""
    with pytest.raises(RefusalError, match="5 replicas, 4 slots"):
        place(2, 2, ranks=5)


@pytest.mark.parametrize(("slots", "workers"), [((1, 1), 1), ((1, 1, 1, 1), 3), ((2, 2), 2)])
def test_a_server_has_a_host_of_its_own(slots: tuple[int, ...], workers: int) -> None:
    """It is the last host, and its slots stay free, so every worker uses its link."""
    spec, placement = place(*slots, ranks=sum(slots)).of_stack("parameter_server")

    assert placement.servers_on == ("abcd"[len(slots) - 1],)
    assert spec.topology.num_processes == workers


def test_fewer_workers_are_allowed_between_hosts_alone() -> None:
    """On one machine every stack has the same ranks; no rank is without a host."""
    push = Timing(operation="push_pull", size_bytes=4096, seconds=((1e-3,),), wrong=0)
    stack = StackTimings(stack="parameter_server", outcome=COMPLETED, timings=(push,))

    assert of(stack, hosts=("a", "b")).several_hosts
    for hosts in ((), ("a", "a")):
        with pytest.raises(RefusalError, match="the same ranks"):
            of(stack, hosts=hosts)
    with pytest.raises(RefusalError, match="Every rank must have a host"):
        of(stack, hosts=("a", "b", "c"))


def test_the_first_schema_is_still_read() -> None:
    """The first schema knew one machine only."""
    text = of(StackTimings(stack="mpi", outcome=COMPLETED)).to_json()
    old = text.replace('"schema_version": 2', '"schema_version": 1')
    old = old.replace(',\n "hosts": [],\n "links": []', "")
    assert '"hosts"' not in old and old != text

    assert Communication.from_json(old) == Communication.from_json(text)
