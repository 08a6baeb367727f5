"""Where the ranks of each stack go, and the document that holds their times."""

from typing import Any

import pytest

from launch.remote.host_checks import HostFacts
from ringside.collectives import store
from ringside.collectives.measurement import Place, filled
from ringside.collectives.stacks import STACKS
from ringside_core.specs import (
    Communication,
    Host,
    Outcome,
    Placement,
    RefusalError,
    StackTimings,
    Timing,
    Topology,
)
from tests.unit.stats.factory import MACHINE

SIZES = (4096, 16384, 65536, 262144)
COMPLETED = Outcome(kind="completed")


def stack_of(name: str, sizes: tuple[int, ...] = SIZES, wrong: int = 0) -> StackTimings:
    """Timings of two ranks."""
    seconds = ((1e-3, 2e-3),) * 5
    timings = [Timing(size_bytes=size, seconds=seconds, wrong=wrong) for size in sizes]
    return StackTimings(stack=name, outcome=COMPLETED, timings=tuple(timings))


def of(*stacks: StackTimings, **where: Any) -> Communication:
    """A measurement of two ranks by this code."""
    return Communication(
        created_unix_s=1.0,
        command="ringside allreduce",
        machine=MACHINE,
        code_version=store.code_version(),
        num_ranks=2,
        stacks=stacks,
        **where,
    )


def facts(cores: int, address: str = "") -> HostFacts:
    """A host with so many cores."""
    known: dict[str, Any] = {"address": address, "cores": cores}
    return HostFacts.model_construct(**known)


def place(slots: tuple[int, ...], cores: tuple[int, ...], ranks: int) -> Place:
    """On hosts `a`, `b`, … with so many slots and cores."""
    hosts = tuple(Host(name=name, slots=n) for name, n in zip("abc", slots, strict=False))
    found = {host.name: facts(count) for host, count in zip(hosts, cores, strict=True)}
    return Place(ranks, filled(Placement(hosts=hosts, interface="eth7"), ranks), found)


def test_hosts_are_filled_in_order() -> None:
    """Hosts without a rank are left out; the interface stays."""
    found = place((2, 2, 2), (2, 2, 2), ranks=4)

    assert found.hosts == ("a", "a", "b", "b")
    assert found.placement.names == ("a", "b") and found.placement.interface == "eth7"
    assert found.spec_of("horovod gloo").topology == Topology(hosts=2, processes_per_host=2)
    with pytest.raises(RefusalError, match="7 replicas, 6 slots"):
        place((2, 2, 2), (2, 2, 2), ranks=7)


@pytest.mark.parametrize(
    ("slots", "cores", "share"),
    [
        ((4, 1), (16, 3), 3),  # 16 / 4 = 4 on a, 3 / 1 = 3 on b
        ((4, 1), (9, 64), 2),  # 9 / 4 = 2.25 on a
        ((3, 1), (2, 8), 1),  # three ranks on two cores
    ],
)
def test_every_stack_has_the_same_cores(
    slots: tuple[int, int], cores: tuple[int, int], share: int
) -> None:
    """A rank gets what every host has for one; each has at least one core."""
    found = place(slots, cores, ranks=sum(slots))

    resources = {found.spec_of(name).resources for name in STACKS}

    assert {(r.cores_per_replica, r.intra_op_threads) for r in resources} == {(share, share)}


def test_a_document_is_of_the_same_ranks() -> None:
    """No timing of two ranks stands in a document of three; every rank has a host."""
    timings = stack_of("mpi")

    assert of(timings, hosts=("a", "b")).several_hosts
    assert not of(timings, hosts=("a", "a")).several_hosts
    for ranks, hosts in ((3, ()), (2, ("a", "b", "c"))):
        with pytest.raises(RefusalError, match=rf"\[2, 3\] ranks, of {ranks}"):
            of(timings).replace(num_ranks=ranks, hosts=hosts)


def test_a_document_with_wrong_elements_has_not_passed() -> None:
    """A stack that cannot run here does not matter; a failed one does."""
    absent = StackTimings(stack="horovod nccl", outcome=Outcome(kind="refused", reason="no GPU"))
    failed = absent.replace(outcome=Outcome(kind="failed", reason="it died"))

    assert of(stack_of("mpi"), absent).passed
    assert not of(stack_of("mpi", wrong=1), absent).passed
    assert not of(stack_of("mpi"), failed).passed


@pytest.mark.parametrize("version", [1, 2])
def test_older_documents_are_read(version: int) -> None:
    """Of older ones only all-reduces and plain links are kept; comparisons hold them, too."""
    whole = of(stack_of("mpi"))
    text = whole.to_json().replace('"schema_version": 3', f'"schema_version": {version}')
    old = '"operation": "broadcast", "seconds": [[1, 1]], "size_bytes": 4, "wrong": 0, "cpu_s": []'
    text = text.replace('"timings": [', f'"timings": [{{{old}}},', 1)
    text = text.replace('"hosts": []', '"add_seconds_per_byte": 1e-10, "hosts": []')
    assert "broadcast" in text and "add_seconds" in text

    assert Communication.from_json(text) == whole
