"""Arms on the hosts of a hostfile: their topology, their room, their cores; and what is kept."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.placement import cores_each
from ringside.comparison import stages
from ringside.comparison.arms import parse_arms
from ringside.comparison.choose import choose_arms
from ringside.comparison.experiment import launched
from ringside.comparison.hosts import fullest, used_hosts, with_room
from ringside.comparison.hosts_load import HostsWatch, Look
from ringside.comparison.resume import refuse_fewer_cores, refuse_other_links
from ringside_core.specs import Comparison, Host, Placement, RefusalError, Resources, Topology
from tests.unit.compare.made import SHARED, UNSEEN, comparison_of
from tests.unit.report.bout import bout
from tests.unit.stats.factory import link


def on(*slots: int, servers_on: tuple[str, ...] = ()) -> Placement:
    """Hosts a, b, c … with so many slots."""
    hosts = tuple(Host(name=name, slots=n) for name, n in zip("abcdef", slots, strict=False))
    return Placement(hosts=hosts, servers_on=servers_on)


@pytest.mark.parametrize(
    ("backend", "replicas", "slots", "topology"),
    [
        ("horovod", 1, (1, 1), Topology()),
        ("horovod", 4, (1, 1, 1, 1), Topology(hosts=4)),
        ("multi_worker_mirrored", 4, (2, 2, 2), Topology(hosts=2, processes_per_host=2)),
        ("parameter_server", 2, (2, 2), Topology(processes_per_host=2)),
        # Unequal: one "host", which fills the hostfile in its order.
        ("horovod", 4, (3, 3), Topology(processes_per_host=4)),
        ("mirrored", 2, (2, 2), Topology(replicas_per_process=2)),
    ],
)
def test_processes_are_spread_over_the_hosts(
    backend: str, replicas: int, slots: tuple[int, ...], topology: Topology
) -> None:
    """The slots of one host are filled before those of the next."""
    arm = parse_arms(backend, str(replicas))[-1]

    assert SHARED.spec_of(arm, on(*slots)).topology == topology


def test_one_process_must_find_its_replicas_on_the_first_host() -> None:
    """The other hosts have room, but the reason names the first."""
    arms = parse_arms("mirrored,horovod", "1,2")

    able, unable = with_room(arms, on(1, 2))

    assert [arm.label for arm in able] == ["serial ×1", "mirrored ×1", "horovod ×1", "horovod ×2"]
    assert [one.label for one in unable] == ["mirrored ×2"]
    assert "a, the first host, has 1 slot" in unable[0].reason
    assert with_room(arms, on(2, 1)) == (arms, ())
    assert with_room(arms, Placement()) == (arms, ())


def test_a_replica_gets_what_the_fullest_host_has() -> None:
    """The cores of the hosts count, not those of this machine; at least one core."""
    arms = parse_arms("horovod", "1,4")
    placement = on(3, 3, 8)
    specs = [SHARED.spec_of(arm, placement) for arm in arms]

    most = fullest(specs, placement)

    assert most == fullest(reversed(specs), placement) == {"a": 3, "b": 1}
    assert cores_each(most, {"a": 8, "b": 64}) == 2
    assert cores_each(most, {"a": 12, "b": 3}) == 3
    assert cores_each(most, {"a": 1, "b": 1}) == 1
    assert used_hosts(specs, placement).names == ("a", "b")
    assert used_hosts(specs, on(3, 3, 8, servers_on=("c",))).names == ("a", "b", "c")


def test_a_hostfile_has_defaults_of_its_own() -> None:
    """The stacks that reach over hosts, at one replica and at all slots."""
    chosen = choose_arms(SHARED, None, None, placement=on(1, 1, 2))

    assert {arm.backend for arm in chosen.arms} == {
        "serial",
        "horovod",
        "multi_worker_mirrored",
        "parameter_server",
    }
    assert {arm.replicas for arm in chosen.arms} == {1, 4}
    assert {arm.replicas for arm in choose_arms(SHARED, None, None).arms} == {1, 2}


def placed() -> Comparison:
    """One on two hosts."""
    return comparison_of("horovod", "1,2").replace(
        hosts=on(1, 1).hosts,
        interface="eth0",
        addresses={"a": "10.0.0.1", "b": "10.0.0.2"},
        links=(link("a", "b", 1000),),
    )


def test_runs_of_a_comparison_go_to_its_hosts() -> None:
    """Also after writing and reading: who resumes it gets the same placement."""
    again = Comparison.from_json(placed().to_json())

    assert again == placed()
    assert again.placement == on(1, 1).replace(interface="eth0")
    arm = next(arm for arm in again.arms if arm.replicas == 2)
    assert again.spec_of(arm).topology == Topology(hosts=2)


@pytest.mark.parametrize(
    ("now", "words"),
    [
        ([("a", "b", 95), ("b", "a", 100)], ""),
        ([("a", "b", 100), ("b", "a", 89)], "b → a is 89 Mbit/s, and it was 0.1 Gbit/s"),
        ([("a", "b", 100), ("b", "a", 90.5)], "b → a is 90.5 Mbit/s, and it was 0.1 Gbit/s"),
        ([("a", "b", 111), ("b", "a", 100)], "a → b is 0.111 Gbit/s, and it was 0.1 Gbit/s"),
        ([("b", "a", 100)], "a → b is unknown, and it was 0.1 Gbit/s"),
    ],
)
def test_rounds_over_other_links_are_not_mixed(
    now: list[tuple[str, str, float]], words: str
) -> None:
    """A rate may differ by a tenth, up or down, in each direction; and it must be known."""
    before = (link("a", "b", 100), link("b", "a", 100))
    links = [link(*one) for one in now]

    if not words:
        refuse_other_links(before, links)
        return
    with pytest.raises(RefusalError, match=words):
        refuse_other_links(before, links)


def test_rounds_with_other_shares_of_the_cores_are_not_mixed() -> None:
    """Two replicas of 2 cores on `a`: fewer cores would be shared, more change nothing."""
    comparison = placed()
    shared = SHARED.replace(resources=Resources(cores_per_replica=2))
    comparison = comparison.replace(shared=shared)
    most = {"a": 2, "b": 1}

    refuse_fewer_cores(comparison, most, {"a": 4, "b": 2})
    refuse_fewer_cores(comparison, most, {"a": 8, "b": 2})
    refuse_fewer_cores(comparison.replace(oversubscribe=True), most, {"a": 1, "b": 1})
    with pytest.raises(RefusalError, match="a has 3 for 2 × 2"):
        refuse_fewer_cores(comparison, most, {"a": 3, "b": 2})


class _WatchedError(Exception):
    """Which hosts were asked."""


def test_hosts_without_a_run_are_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If such a host is off, the loads of the others are still known."""

    def noted(self: HostsWatch, names: tuple[str, ...]) -> None:
        raise _WatchedError(names)

    monkeypatch.setattr(HostsWatch, "__init__", noted)
    placement = on(1, 1, 1)
    for replicas, names in ((1, ("a",)), (2, ("a", "b"))):
        arm = parse_arms("horovod", str(replicas))[-1]
        spec = SHARED.spec_of(arm, placement)
        with pytest.raises(_WatchedError) as asked:
            launched(1.0, UNSEEN, placement)(arm, spec, tmp_path)
        assert asked.value.args == (names,)


def test_the_announcement_says_that_no_look_is_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything runs, if a host in use does not answer."""
    asked: list[tuple[str, ...]] = []
    answers: Iterator[dict[str, Look] | None] = iter((None, {}))

    def answer(names: tuple[str, ...]) -> object:
        asked.append(names)
        return next(answers)

    monkeypatch.setattr(stages, "looks", answer)
    blind, seeing = (" ".join(stages.announcement(placed())) for _ in range(2))

    assert asked == [("a", "b")] * 2
    assert "what is disturbed is not known" in blind
    assert "what is disturbed is not known" not in seeing


def test_certificates_of_other_hosts_are_refused() -> None:
    """The message names both sets of hosts."""
    with pytest.raises(RefusalError, match=r"was verified on one machine.*is of a \(1\), b \(1\)"):
        bout().replace(hosts=on(1, 1).hosts)
