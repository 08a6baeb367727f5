"""Names, addresses and shares, without a lab."""

import math
from collections import Counter

import pytest

import ringside.cli.main
from ringside.lab import LabHost
from ringside.lab.link import free_subnet
from ringside.lab.names import MOST_HOSTS, check_name, interface_of, is_numbered, lab_of, numbered
from ringside.lab.share import cores_of, default_cores, overbooked
from ringside_core.specs import RefusalError


def host(index: int, cores: float, affinity: tuple[int, ...]) -> LabHost:
    """Host `index` of lab `blue`."""
    return LabHost(
        name=f"blue{index}",
        index=index,
        address=f"10.77.0.{index}",
        cores=cores,
        affinity=affinity,
    )


@pytest.mark.parametrize(
    "name", ["", "Blue", "lab1", "a-b", "a_b", "abcdefghij", "a\n", "ä", "../x"]
)
def test_a_name_that_interfaces_cannot_have_is_refused(name: str) -> None:
    """Before anything is made."""
    with pytest.raises(RefusalError, match="one to nine lower-case letters"):
        check_name(name)


def test_every_name_fits_into_an_interface() -> None:
    """Linux allows 15 characters and a zero."""
    longest = check_name("abcdefghi")

    assert len(numbered(longest, MOST_HOSTS)) <= 15
    assert interface_of(longest) == "rs-abcdefghi"


def test_a_host_says_its_lab() -> None:
    """`cut blue12` needs no --name."""
    assert lab_of("blue12") == "blue"
    assert host(12, 1, (0,)).lab == "blue"
    for nonsense in ("blue", "12", "blue0", "blue012", "blue-1", "blue123"):
        with pytest.raises(RefusalError, match="the lab's name and its number"):
            lab_of(nonsense)


def test_a_lab_does_not_take_anothers_parts_for_its_own() -> None:
    """`down` removes by name: lab `b` must not remove parts of `bb`."""
    assert is_numbered("b", "rs-b-1")
    for others in ("rs-bb-1", "rs-b", "rs-b-", "rs-b-1x", "xrs-b-1", "b-1", "rs-b-1\n"):
        assert not is_numbered("b", others)


def test_a_subnet_is_free() -> None:
    """No route of the machine, wide or narrow, leads into it."""
    assert free_subnet(["default", "192.0.2.0/24"]) == 0
    assert free_subnet(["10.77.0.0/24", "10.77.1.254", "10.77.2.128/25"]) == 3
    assert free_subnet(["10.77.0.0/17"]) == 128
    with pytest.raises(RefusalError, match="no route into"):
        free_subnet(["10.0.0.0/8"])


@pytest.mark.parametrize("usable", [[0], [0, 1], [2, 3, 5, 7], list(range(8))])
@pytest.mark.parametrize("hosts", range(1, 10))
def test_by_default_no_core_is_promised_twice(
    hosts: int, usable: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a host is as fast when the others work as when they idle."""
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(usable))

    each = default_cores(hosts)
    lab = [host(one, each, cores_of(one, each, usable)) for one in range(1, hosts + 1)]

    pinned = Counter(core for one in lab for core in one.affinity)
    assert all(len(one.affinity) == 1 for one in lab)
    assert set(pinned) <= set(usable)
    assert max(pinned.values()) == math.ceil(hosts / len(usable))
    assert each * max(pinned.values()) == pytest.approx(1)
    assert not overbooked(lab)


def test_a_host_of_several_cores_has_them_side_by_side() -> None:
    """Cores are dealt to the hosts in turn; a core promised twice is reported."""
    usable = [4, 5, 6, 7]

    assert [cores_of(one, 2, usable) for one in (1, 2, 3)] == [(4, 5), (6, 7), (4, 5)]
    assert cores_of(1, 1.5, usable) == (4, 5)
    assert not overbooked([host(1, 2, (4, 5)), host(2, 2, (6, 7))])
    assert overbooked([host(1, 2, (4, 5)), host(2, 2, (6, 7)), host(3, 2, (4, 5))])
    with pytest.raises(RefusalError, match="more cores than the machine"):
        cores_of(1, 4.5, usable)
    with pytest.raises(RefusalError, match="Received: --cores inf"):
        cores_of(1, math.inf, usable)
    with pytest.raises(RefusalError, match="Received: --cores nan"):
        cores_of(1, math.nan, usable)


def test_a_rate_of_two_labs_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A host belongs to one lab; a name of the other lab is not ignored."""
    assert ringside.cli.main.run(["lab", "rate", "10mbit", "--host", "lab1", "--name", "blue"]) == 2

    assert "Received: --host lab1 --name blue." in capsys.readouterr().err
