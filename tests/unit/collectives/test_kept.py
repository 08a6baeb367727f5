"""What of `ringside allreduce` is on disk: after each stack, and for later comparisons."""

import csv
import io
import os
from pathlib import Path
from typing import Any

import pytest

import ringside.cli.main
from ringside.collectives import store
from ringside.collectives.stacks import STACKS
from ringside.collectives.store import alike, find_communication, keep, why_not_kept
from ringside_core.specs import (
    Communication,
    Link,
    Outcome,
    StackTimings,
    Timing,
)
from tests.unit.stats.factory import MACHINE

SIZES = (4096, 16384, 65536, 262144)
COMPLETED = Outcome(kind="completed")


def stack_of(name: str, sizes: tuple[int, ...] = SIZES, times: int = 5, wrong: int = 0) -> Any:
    """Timings of two ranks."""
    timings = [
        Timing(operation="allreduce", size_bytes=size, seconds=((1e-3, 2e-3),) * times, wrong=wrong)
        for size in sizes
    ]
    return StackTimings(stack=name, outcome=COMPLETED, timings=tuple(timings))


def of(*stacks: StackTimings, **where: Any) -> Communication:
    """A measurement on this machine by this code."""
    return Communication(
        created_unix_s=1.0,
        command="ringside allreduce",
        machine=MACHINE,
        code_version=store.code_version(),
        num_ranks=2,
        stacks=stacks,
        **where,
    )


def every(**changes: Any) -> list[StackTimings]:
    """All stacks; the NCCL ones cannot run."""
    no_gpu = Outcome(kind="refused", reason="no GPU")
    return [
        StackTimings(stack=name, outcome=no_gpu)
        if "nccl" in name.lower()
        else stack_of(name, **changes)
        for name in STACKS
    ]


@pytest.mark.parametrize(
    ("stacks", "cores", "words"),
    [
        (every(), 2, ""),
        (every(), 1, "it has more ranks (2) than usable cores (1)"),
        (every(sizes=SIZES[:3]), 2, "it has 3 of at least 4 sizes"),
        (every(times=4), 2, "it has 4 of at least 5 repetitions"),
        (every()[1:], 2, "it is without mpi"),
        ([stack_of("mpi")], 2, "it is without horovod mpi, horovod gloo, horovod nccl, tf"),
        (every(wrong=1), 2, "a stack failed, or elements were wrong"),
    ],
)
def test_what_is_kept(stacks: list[StackTimings], cores: int, words: str) -> None:
    """A measurement of one stack or one size must not replace the one that reports use."""
    why_not = why_not_kept(of(*stacks), usable_cores=cores)

    assert why_not.startswith(words) and bool(why_not) == bool(words)


@pytest.mark.parametrize(("hosts", "kept"), [(("a", "b"), True), (("a", "a"), False)])
def test_ranks_of_one_host_share_its_cores(hosts: tuple[str, ...], kept: bool) -> None:
    """Cores of another host do not help."""
    why_not = why_not_kept(of(*every(), hosts=hosts), usable_cores=1)

    assert why_not == ("" if kept else "it has more ranks (2) than usable cores (1) on a host")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Nothing is started: the names of the stacks that were asked for, in order."""
    asked: list[str] = []

    def measure(name: str, request: Any, place: Any, folder: Path) -> StackTimings:
        asked.append(name)
        return stack_of(name, sizes=request.sizes)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("ringside.collectives.run._measure", measure)
    monkeypatch.setattr("ringside.collectives.run.add_seconds_per_byte", lambda: 1e-10)
    monkeypatch.setattr("ringside.collectives.run.machine_facts", lambda: MACHINE)
    monkeypatch.setattr(store, "machine_facts", lambda: MACHINE)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    return asked


def run(capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, str]:
    """(exit code, what was said)."""
    code = ringside.cli.main.run(["allreduce", "--name", f"a{len(flags)}", *flags])
    return code, " ".join(capsys.readouterr().out.split())


def test_a_toy_does_not_replace_the_measurement(
    measured: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A whole measurement is kept silently; a small one says why it is not kept."""
    code, said = run(capsys)
    kept = find_communication()
    toy_code, toy_said = run(capsys, "--stacks", "mpi", "--sizes", "4KiB")

    assert (code, toy_code) == (0, 0)
    assert "not kept" not in said and "more ranks" not in said
    assert measured == [*STACKS, "mpi"]
    assert "not kept for later comparisons: it is without horovod mpi, " in toy_said
    assert kept is not None and find_communication() == kept


def test_ranks_that_share_cores_are_told(
    measured: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are named before the timing, with the reason why nothing is kept."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5})

    _, said = run(capsys)

    assert said.startswith("more ranks (2) than usable cores (1): ")
    assert "not kept for later comparisons: it has more ranks (2) than usable cores (1)" in said
    assert measured and find_communication() is None


def link(mbit: int, sender: str = "one", receiver: str = "two") -> Link:
    """From one to the other."""
    return Link(sender=sender, receiver=receiver, tool="tcp", bytes=mbit * 125_000, seconds=1.0)


@pytest.mark.usefixtures("measured")
def test_hosts_have_their_own() -> None:
    """One host's measurement is not used for others, nor for the same hosts on another link."""
    local, remote = of(*every()), of(*every(), hosts=("one", "two"), links=(link(100),))

    keep(local)
    keep(remote)

    assert find_communication() == local
    assert find_communication(("one", "two"), [link(100)]) == remote
    assert find_communication(("two", "one"), [link(100)]) is None
    assert find_communication(("one", "one", "two"), [link(100)]) is None


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("address", ["10.0.0.1", "10.0.0.9"])
@pytest.mark.parametrize("cores", [1, 2])
def test_a_name_is_not_a_host(address: str, cores: int) -> None:
    """The same names with other addresses or cores are another measurement."""
    remote = of(*every(), hosts=("one", "two"), links=(link(100),))
    keep(remote, addresses={"one": "10.0.0.1", "two": "10.0.0.2"}, cores={"one": 1, "two": 2})

    found = find_communication(
        ("one", "two"),
        [link(100)],
        addresses={"one": address, "two": "10.0.0.2"},
        cores={"one": cores, "two": 2},
    )

    assert (found == remote) == (address == "10.0.0.1" and cores == 1)
    assert (found is None) == (found != remote)


@pytest.mark.parametrize(
    ("now", "same"),
    [
        ([link(109)], True),
        ([link(111)], False),
        ([link(91)], True),
        ([link(90)], False),
        ([], False),
        ([link(100), link(100, "two", "one")], False),
        ([link(100, "two", "one")], False),
    ],
)
def test_links_are_the_same_links(now: list[Link], same: bool) -> None:
    """The same pairs at the same rates, in any order; without links nothing is known."""
    assert alike([link(100)], now, hosts={"one", "two"}) == same
    assert alike(now, [link(100)], hosts={"one", "two"}) == same


def test_without_links_of_several_hosts_nothing_is_the_same() -> None:
    """One host has no links."""
    assert not alike([], [], hosts={"one", "two"})
    assert alike([], [], hosts={"one"})


def test_iperf3_is_no_other_link() -> None:
    """iperf3 may be installed at one time and missing at another."""
    both = [link(100), link(70).replace(tool="iperf3")]

    assert alike(both, [link(100)], hosts={"one", "two"})


@pytest.mark.parametrize("through", [0, 2])
def test_an_interrupted_command_keeps_the_stacks_that_are_through(
    through: int,
    measured: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Their samples are kept, but later comparisons do not use them."""

    def measure(name: str, *_: Any) -> StackTimings:
        if len(measured) == through:
            raise KeyboardInterrupt
        measured.append(name)
        return stack_of(name)

    monkeypatch.setattr("ringside.collectives.run._measure", measure)
    folder = tmp_path / "runs" / "a0"

    code, said = run(capsys)

    assert code == 130
    assert find_communication() is None
    if not through:
        assert list(folder.iterdir()) == [] and "stopped; no stack is done" in said
        return
    assert "stopped; the stacks that are done: " in said
    told = Communication.from_json((folder / "communication.json").read_text())
    assert [stack.stack for stack in told.stacks] == list(STACKS)[:2]
    rows = list(csv.DictReader(io.StringIO((folder / "samples.csv").read_text())))
    assert len(rows) == 2 * len(SIZES) * 5 * 2  # stacks, sizes, repetitions, ranks
