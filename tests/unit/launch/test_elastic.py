"""How many replicas a run gets on the hosts that are usable, and when it is asked to grow."""

import functools
import time
from pathlib import Path

import pytest

from launch import elastic
from launch.attempts import Attempts, attempt
from launch.elastic import Elastic
from launch.interrupts import Interrupts
from launch.site import Site
from ringside_core.specs import Execution, Host, Outcome, Placement, RefusalError, RunSpec, Topology
from tests.unit.stats import factory
from tests.waiting import wait_until

COMPLETED = Execution(outcome=Outcome(kind="completed"), records=(), wall_s=1.0)
PREEMPTED = Execution(outcome=Outcome(kind="preempted", reason="asked"), records=(), wall_s=1.0)
FAILED = Execution(outcome=Outcome(kind="failed", reason="it died"), records=(), wall_s=1.0)


class Network:
    """Hosts with two slots each, of which some are down."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, run_dir: Path) -> None:
        self.run_dir, self.listed, self.down = run_dir, ["a", "b", "c"], set[str]()
        self.said: list[str] = []
        monkeypatch.setattr(elastic, "usable_hosts", self.usable)

    def hosts(self) -> tuple[Host, ...]:
        return tuple(Host(name=name, slots=2) for name in self.listed)

    def usable(
        self, placement: Placement, site: Site, *, folder: Path, spec: RunSpec, interrupts: object
    ) -> tuple[Placement, list[str]]:
        there = tuple(host for host in placement.hosts or () if host.name not in self.down)
        return placement.replace(hosts=there), [f"{name}: it is off" for name in sorted(self.down)]

    def elastic(self, spec: RunSpec, fewest: int) -> Elastic:
        return Elastic(
            spec,
            fewest,
            hosts=self.hosts,
            placement=Placement(hosts=self.hosts()),
            run_dir=self.run_dir,
            say=self.said.append,
        )


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Network:
    """Three hosts, all of them up."""
    return Network(monkeypatch, tmp_path)


spec_of = functools.partial(factory.spec_of, global_batch=60)


def started(network: Network, spec: RunSpec, fewest: int) -> tuple[RunSpec, Placement]:
    """With what it is started."""
    found: list[tuple[RunSpec, Placement]] = []

    def run(fitted: RunSpec, placement: Placement) -> Execution:
        found.append((fitted, placement))
        return COMPLETED

    assert network.elastic(spec, fewest).run(spec, run, Interrupts()).outcome.completed
    return found[0]


@pytest.mark.parametrize(
    ("backend", "replicas", "down", "global_batch", "wanted"),
    [
        ("horovod", 6, "", 60, Topology(hosts=3, processes_per_host=2)),
        ("horovod", 6, "b", 60, Topology(hosts=2, processes_per_host=2)),
        ("multi_worker_mirrored", 6, "a", 60, Topology(hosts=2, processes_per_host=2)),
        ("horovod", 5, "a", 60, Topology(hosts=2, processes_per_host=2)),  # 5 have no room
        ("horovod", 6, "c", 18, Topology(hosts=2, processes_per_host=2)),
        ("mirrored", 2, "a", 60, Topology(replicas_per_process=2)),
    ],
)
def test_as_many_replicas_as_there_is_room_for(
    network: Network, backend: str, replicas: int, down: str, global_batch: int, wanted: Topology
) -> None:
    """The global batch stays as it is, whatever divides it."""
    network.down = set(down)
    spec = spec_of(backend, replicas, global_batch=global_batch)

    fitted, placement = started(network, spec, fewest=2)

    assert fitted.topology == wanted
    assert fitted.global_batch == global_batch
    assert not network.down & {host.name for host in placement.hosts or ()}


def test_too_few_hosts_are_a_refusal_with_the_reasons(network: Network) -> None:
    """Nothing is started; a run that has been started waits for them."""
    spec = spec_of("horovod", 6)
    fits = network.elastic(spec, 3)
    network.down = {"b", "c"}
    with pytest.raises(RefusalError, match="3 replicas at least"):
        fits.run(spec, lambda *_: COMPLETED, Interrupts())

    network.down = set()
    fits.run(spec, lambda *_: COMPLETED, Interrupts())
    network.down = {"b", "c"}
    ended = fits.run(spec, lambda *_: COMPLETED, Interrupts())

    assert ended.outcome.kind == "refused"
    for words in ("3 replicas at least", "b: it is off", "c: it is off"):
        assert words in ended.outcome.reason


def test_a_host_that_is_taken_out_of_the_hostfile_is_not_used(network: Network) -> None:
    """The file is read again; a new host takes its place."""
    spec = spec_of("horovod", 6)
    fits = network.elastic(spec, 2)
    network.listed = ["a", "d"]
    used: list[Placement] = []

    def run(fitted: RunSpec, placement: Placement) -> Execution:
        used.append(placement)
        return COMPLETED

    fits.run(spec, run, Interrupts())

    assert used[0].names == ("a", "d")
    assert network.said == ["with 4 of 6 replicas"]


def test_the_fewest_may_not_be_more_than_the_most(network: Network) -> None:
    """One message, before anything starts."""
    with pytest.raises(RefusalError, match="--min-replicas 3 --replicas 2"):
        network.elastic(spec_of("horovod", 2), 3)


def test_it_shrinks_and_grows_without_counting_that_as_a_fault(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """b dies, and comes back: 6 replicas, 4, 6; one restart is used up."""
    monkeypatch.setattr(elastic, "LOOK_S", 0.05)
    spec = spec_of("horovod", 6)
    fits, sizes = network.elastic(spec, 2), list[int]()
    (network.run_dir / "progress").mkdir()

    def start(spec: RunSpec, interrupts: Interrupts) -> Execution:
        def run(fitted: RunSpec, placement: Placement) -> Execution:
            sizes.append(fitted.topology.num_replicas)
            if len(sizes) == 1:
                network.down = {"b"}
                return FAILED
            if len(sizes) == 2:
                network.down = set()
                time.sleep(0.2)
                assert not interrupts.preempts()  # it does not train yet
                (network.run_dir / "progress" / "rank-0").write_text("1.0 3 30 training 1")
                wait_until(interrupts.preempts)
                return PREEMPTED
            return COMPLETED

        return fits.run(spec, run, interrupts)

    history = attempt(spec, network.run_dir, start, restarts=1, say=network.said.append)[1]

    assert sizes == [6, 4, 6]
    assert [one.resized for one in history.attempts] == [False, True, False]
    assert network.said == [
        "failed(it died); restart 1 of 1",
        "with 4 of 6 replicas: b: it is off",
        "with 6 of 6 replicas",
    ]
    assert Attempts.from_json((network.run_dir / "attempts.json").read_text()) == history


def test_a_host_that_does_not_let_a_run_start_is_looked_at_less_often(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is usable while the run trains, and not when it starts."""
    monkeypatch.setattr(elastic, "LOOK_S", 0.02)
    spec = spec_of("horovod", 6)
    fits, pauses = network.elastic(spec, 2), list[float]()
    (network.run_dir / "progress").mkdir()
    (network.run_dir / "progress" / "rank-0").write_text("1.0 3 30 training 1")

    def run(fitted: RunSpec, placement: Placement) -> Execution:
        network.down, before = set(), time.monotonic()
        wait_until(interrupts.preempts)
        pauses.append(time.monotonic() - before)
        return PREEMPTED

    interrupts = Interrupts(saves=True)
    for _ in range(6):
        network.down = {"b"}
        fits.run(spec, run, interrupts)
        assert interrupts.has_resized()

    assert pauses[-1] >= 32 * 0.02


def test_sigterm_ends_a_run_that_is_asked_to_grow() -> None:
    """Its sender wants the end, whatever was asked before."""
    interrupts = Interrupts(saves=True)
    interrupts.resize()
    assert interrupts.preempts()
    assert not interrupts.preempts()
    interrupts.stop()  # as SIGTERM does

    assert interrupts.preempts()
    assert interrupts.preempting
    interrupts.resize()
    assert not interrupts.preempts()
