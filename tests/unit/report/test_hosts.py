"""What a report says of hosts, of the links between them, and of others on the machine."""

import pytest

from ringside.report.blocks import Terms
from ringside.report.sections.caveats import caveats
from ringside.report.sections.environment import environment_section, hosts_and_links
from ringside.report.sections.noise import noise_section
from ringside.stats.side_by_side import side_by_side
from ringside.stats.summary import summarize
from ringside_core.specs import Comparison, Host, RefusalError
from ringside_core.text import plain
from tests.unit.report.judged import bare
from tests.unit.report.small import small
from tests.unit.stats.factory import link


def placed(**changes: object) -> Comparison:
    """On two hosts of three, with a link in each direction."""
    fields = {
        "hosts": tuple(Host(name=name, slots=2) for name in ("a", "b", "c")),
        "interface": "eth7",
        "addresses": {"a": "10.0.0.1", "b": "10.0.0.2"},
        "links": (link("a", "b", 940), link("b", "a", 950)),
        "links_at_end": (link("a", "b", 930), link("b", "a", 900)),
        "certificates": (),
        **changes,
    }
    return bare().replace(**fields)


def whats(comparison: Comparison) -> list[str]:
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
    ("after", "named"), [(0.94, False), (0.86, False), (0.84, True), (1.02, False), (1.04, True)]
)
def test_a_link_that_changed_is_a_caveat(after: float, named: bool) -> None:
    """By more than a tenth, up or down, with both values."""
    comparison = placed(links_at_end=(link("a", "b", 1000 * after), link("b", "a", 950)))

    found = [what for what in whats(comparison) if "rate of links changed" in what]

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
        links=(link("d", "e", 9400),),
    )

    with pytest.raises(RefusalError, match=r"slots of the hosts.*\[\] before, \[2, 2, 2\] now"):
        side_by_side(bare(), placed())
    differs = side_by_side(placed(), faster).differs
    assert ("hosts", "a, b, c", "d, e, f") in differs
    assert ("slowest link", "0.94 Gbit/s", "9.4 Gbit/s") in differs


def of_all_cores(comparison: Comparison) -> str:
    """The fact in the section on noise."""
    section = noise_section(comparison, summarize(comparison))
    (facts,) = (block for block in section.blocks if isinstance(block, Terms))
    return plain(dict(facts.items)["All cores of the machine"])


def test_others_beside_the_cores_of_the_runs_are_reported() -> None:
    """(18 − 15 + 0.5) of 8 · 9.5 s are 4.6 %, (30 − 15 + 0.5) are 20 %: that is a caveat."""
    quiet = small()
    (first, *others) = quiet.runs
    assert first.load is not None
    (counts,) = first.load.machines
    load = first.load.replace(machines=(counts.replace(machine_busy_s=30.0),))
    busy = quiet.replace(runs=(first.replace(load=load), *others))

    said = [
        [plain(one.what) for one in caveats(each, summarize(each)) if "all cores" in one.what]
        for each in (quiet, busy)
    ]

    assert of_all_cores(quiet) == "others used 4.6 % in the median run, 4.6 % at most"
    assert of_all_cores(busy) == "others used 4.6 % in the median run, 20 % at most"
    assert said[0] == []
    assert said[1][0].startswith(
        "In 1 run others used more than 10 % of all cores of the machine, at most 20 % of 8 "
        f"({first.arm})."
    )
