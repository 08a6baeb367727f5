"""What may be asked for, where the ranks go, and the document that holds their times."""

import shutil
from typing import Any

import pytest

from launch.remote.host_checks import HostFacts
from ringside.collectives import stacks, store
from ringside.collectives.measurement import Place, filled
from ringside.collectives.request import DEFAULT_SIZES, check_memory, fitting, parse_sizes
from ringside.collectives.stacks import STACKS, obstacle, options_of, parse_stacks
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
from ringside_core.specs.options import CommunicationOptions
from tests.unit.stats.factory import communication_of

SIZES = (4096, 16384, 65536, 262144)
COMPLETED = Outcome(kind="completed")


def stack_of(name: str, sizes: tuple[int, ...] = SIZES, wrong: int = 0) -> StackTimings:
    """Timings of two ranks."""
    seconds = ((1e-3, 2e-3),) * 5
    timings = [Timing(size_bytes=size, seconds=seconds, wrong=wrong) for size in sizes]
    return StackTimings(stack=name, outcome=COMPLETED, timings=tuple(timings))


def of(*stacks: StackTimings, **where: Any) -> Communication:
    """A measurement of two ranks by this code."""
    return communication_of(stacks, code_version=store.code_version(), **where)


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


def test_every_stack_has_the_same_cores() -> None:
    """A rank gets what every host has for one: 9 / 4 = 2.25 on a, 3 / 1 on b."""
    found = place((4, 1), (9, 3), ranks=5)

    resources = {found.spec_of(name).resources for name in STACKS}

    assert {(r.cores_per_replica, r.intra_op_threads) for r in resources} == {(2, 2)}


def test_a_document_is_of_the_same_ranks() -> None:
    """No timing of two ranks stands in a document of three; every rank has a host."""
    timings = stack_of("mpi")

    assert of(timings, hosts=("a", "b")).several_hosts
    assert not of(timings, hosts=("a", "a")).several_hosts
    for ranks, hosts in ((3, ()), (2, ("a", "b", "c"))):
        with pytest.raises(RefusalError, match=rf"\[2, 3\] ranks, of {ranks}"):
            of(timings).replace(num_ranks=ranks, hosts=hosts)


def test_sizes_come_sorted_and_once() -> None:
    """In bytes. Below 4096 bytes Open MPI sums in another way, which shows the latency."""
    assert parse_sizes("1MiB, 8 B,4KiB,1MiB", ranks=2) == (8, 4096, 2**20)
    assert parse_sizes(DEFAULT_SIZES, ranks=2) == (2048, *(4096 * 4**k for k in range(9)))


@pytest.mark.parametrize("text", ["", "4", "4kb", "1.5MiB", "6B", "4B", "0KiB", "1MiB-4MiB"])
def test_other_sizes_are_refused(text: str) -> None:
    """The message shows what was received and an example."""
    with pytest.raises(RefusalError, match="A size is a whole number") as refused:
        parse_sizes(f"8B,{text}", ranks=2)

    assert f"{text!r} in '8B,{text}', 2 ranks" in str(refused.value)


def test_arrays_must_fit_into_memory() -> None:
    """Each of 2 ranks has four of 1 MiB: 8 MiB, and not a byte less."""
    check_memory([4096, 2**20], ranks=2, available_bytes=8 * 2**20)
    with pytest.raises(RefusalError, match="8 MiB needed, "):
        check_memory([4096, 2**20], ranks=2, available_bytes=8 * 2**20 - 1)


@pytest.mark.parametrize(
    ("mbit_s", "largest"),
    # Two passes of n: 2 · 8 · 4 MiB / 10 Mbit/s = 6.7 s; of 16 MiB 26.8 s.
    [(10, 2**22), (100, 2**24), (1000, 2**28), (0.000_1, 2048)],
)
def test_sizes_fit_the_link(mbit_s: float, largest: int) -> None:
    """One operation takes ten seconds at most; the smallest size always stays."""
    sizes = parse_sizes(DEFAULT_SIZES, ranks=2)

    fit = fitting(sizes, mbit_s * 1e6)

    assert max(fit) == largest and fit == sizes[: len(fit)]


def test_an_unknown_stack_is_refused_with_the_nearest() -> None:
    """So is an empty list."""
    assert parse_stacks("mpi, horovod gloo,mpi") == ("mpi", "horovod gloo")
    assert parse_stacks("all") == tuple(STACKS)
    with pytest.raises(RefusalError, match="Did you mean 'horovod gloo'"):
        parse_stacks("mpi,horovod glo")
    with pytest.raises(RefusalError, match="at least one"):
        parse_stacks(",")


def test_settings_are_options_of_the_stack() -> None:
    """They follow a colon; an option that defines the stack itself cannot be set."""
    (name,) = parse_stacks("tf.distribute RING:bytes_per_pack=1048576")

    options = options_of(name)

    assert options == CommunicationOptions(implementation="RING", bytes_per_pack=2**20)
    with pytest.raises(RefusalError, match="controller is chosen by the name"):
        parse_stacks("horovod mpi:controller=gloo")


def test_what_is_missing_is_known_without_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only bare MPI is called through mpi4py; NCCL needs a GPU."""
    monkeypatch.setattr(stacks, "gpu_names", lambda: ())
    monkeypatch.setattr(stacks, "find_spec", lambda name: None if name == "mpi4py" else object())
    monkeypatch.setattr(shutil, "which", lambda program, path: f"/usr/bin/{program}")

    assert obstacle("horovod mpi") == obstacle("tf.distribute RING") == ""
    assert obstacle("mpi") == "mpi4py is not installed"
    assert "NVIDIA GPUs" in obstacle("horovod nccl")
    assert "NVIDIA GPUs" in obstacle("tf.distribute NCCL")

    monkeypatch.setattr(shutil, "which", lambda program, path: None)
    assert obstacle("horovod mpi") == "mpirun is not installed"
    monkeypatch.setattr(stacks, "find_spec", lambda name: None)
    assert obstacle("horovod gloo") == "Horovod is not installed"
