"""What a report says of hosts and of the links between them; and nothing of it for one machine."""

import pytest

from ringside.report.sections.caveats import caveats
from ringside.report.sections.environment import environment_section, hosts_and_links
from ringside.stats.side_by_side import side_by_side
from ringside.stats.summary import summarize
from ringside_core.specs import (
    Comparison,
    Host,
    Link,
    RefusalError,
)
from tests.unit.report.judged import bare


def link(sender: str, receiver: str, gbit_s: float) -> Link:
    """One that carries so much."""
    return Link(sender=sender, receiver=receiver, bytes=round(gbit_s * 1e9 / 8), seconds=1.0)


def placed(**changes: object) -> Comparison:
    """On two hosts of three, with a link in each direction."""
    fields = {
        "hosts": tuple(Host(name=name, slots=2) for name in ("a", "b", "c")),
        "interface": "eth7",
        "addresses": {"a": "10.0.0.1", "b": "10.0.0.2"},
        "links": (link("a", "b", 0.94), link("b", "a", 0.95)),
        "links_at_end": (link("a", "b", 0.93), link("b", "a", 0.90)),
        "certificates": (),
        **changes,
    }
    return bare().replace(**fields)


def told(comparison: Comparison) -> list[str]:
    """Its caveats."""
    return [one.what for one in caveats(comparison, summarize(comparison))]


def test_the_environment_names_hosts_interface_and_links() -> None:
    """Those that were used, not others in the hostfile."""
    facts = dict(hosts_and_links(placed(servers_on=("b",), oversubscribe=True)))

    assert facts == {
        "Hosts used": "a (10.0.0.1, 2 slots), b (10.0.0.2, 2 slots)",
        "Interface": "eth7",
        "Parameter servers on": "b",
        "Oversubscribed": "the user allowed more processes than cores on a host",
        "Link a → b": "0.94 Gbit/s before the first run, 0.93 Gbit/s after the last, plain TCP",
        "Link b → a": "0.95 Gbit/s before the first run, 0.9 Gbit/s after the last, plain TCP",
    }
    answer = environment_section(placed(), "0").answer
    assert answer.startswith("2 hosts, of which the first is bench-1: 2 cores of ")


@pytest.mark.parametrize(
    ("after", "named"),
    [(0.94, False), (0.86, False), (0.84, True), (1.02, False), (1.04, True)],
)
def test_a_link_that_changed_is_a_caveat(after: float, named: bool) -> None:
    """By more than a tenth, up or down, with both values."""
    comparison = placed(links_at_end=(link("a", "b", after), link("b", "a", 0.95)))

    found = [what for what in told(comparison) if "rate of links changed" in what]

    assert bool(found) == named
    if named:
        assert found == [
            "Between the first and the last run the rate of links changed by more than 10 %, or "
            f"their TCP congestion control changed: a → b (0.94 Gbit/s, then {after:.3g} Gbit/s)."
        ]


def test_side_by_side_only_with_the_same_slots() -> None:
    """One machine is not two hosts; other names and links are reported."""
    faster = placed(
        hosts=tuple(Host(name=name, slots=2) for name in ("d", "e", "f")),
        addresses={"d": "10.0.0.4", "e": "10.0.0.5"},
        links=(link("d", "e", 9.4),),
    )

    with pytest.raises(RefusalError, match=r"slots of the hosts.*\[\] before, \[2, 2, 2\] now"):
        side_by_side(bare(), placed())
    differs = side_by_side(placed(), faster).differs
    assert ("hosts", "a, b, c", "d, e, f") in differs
    assert ("slowest link", "0.94 Gbit/s", "9.4 Gbit/s") in differs


def test_runs_that_nobody_watched_are_a_caveat() -> None:
    """Only on hosts; a system without /proc/stat is not asked at all."""
    watched = placed()
    unwatched = tuple(run.replace(load=None) for run in watched.runs)

    assert any("could not be watched" in what for what in told(watched.replace(runs=unwatched)))
    assert not any("could not be watched" in what for what in told(bare().replace(runs=unwatched)))
