"""Names, addresses, rates and shares, without a lab; and the release of a host."""

import math
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from ringside.lab import host as hosts_room
from ringside.lab import names
from ringside.lab.link import format_rate, free_subnet, parse_rate
from ringside.lab.names import LabHost, check_name, lab_of, lab_of_numbered
from ringside.lab.share import cores_of, default_cores, overbooked
from ringside_core.specs import RefusalError


def host(index: int, cores: float, affinity: tuple[int, ...]) -> LabHost:
    """Host `index` of lab `blue`."""
    return LabHost(
        name=f"blue{index}", index=index, address=f"10.77.0.{index}", cores=cores, affinity=affinity
    )


@pytest.mark.parametrize(
    "name", ["", "Blue", "lab1", "a-b", "a_b", "abcdefghij", "a\n", "ä", "../x"]
)
def test_a_name_that_interfaces_cannot_have_is_refused(name: str) -> None:
    """Before anything is made."""
    with pytest.raises(RefusalError, match="one to nine lower-case letters"):
        check_name(name)


def test_a_host_says_its_lab() -> None:
    """`cut blue12` needs no --name."""
    assert lab_of("blue12") == "blue"
    assert host(12, 1, (0,)).lab == "blue"
    for nonsense in ("blue", "12", "blue0", "blue012", "blue-1", "blue123"):
        with pytest.raises(RefusalError, match="the lab's name and its number"):
            lab_of(nonsense)


def test_a_lab_does_not_take_anothers_parts_for_its_own() -> None:
    """`down` removes by name: lab `b` must not remove parts of `bb`."""
    assert lab_of_numbered("rs-b-1") == "b"
    for others in ("rs-bb-1", "rs-b", "rs-b-", "rs-b-1x", "xrs-b-1", "b-1", "rs-b-1\n"):
        assert lab_of_numbered(others) != "b"


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


@pytest.mark.parametrize(
    ("text", "bits_per_s"),
    [
        ("1mbit", 10**6),
        ("10mbit", 10**7),
        ("100mbit", 10**8),
        ("1gbit", 10**9),
        ("2.5gbit", 2_500_000_000),
        ("10gbit", 10**10),
        ("100gbit", 10**11),
    ],
)
def test_a_rate_is_read_and_written(text: str, bits_per_s: int) -> None:
    """Decimal units, both ways."""
    assert parse_rate(text) == bits_per_s
    assert format_rate(bits_per_s) == text


@pytest.mark.parametrize(
    "text",
    """ 1 1g 1Gbit 1_gbit 1gbps -1gbit 1e3mbit 0mbit 0.5mbit 101gbit nanmbit 1gbit_ 1gibit १mbit
    1kbit 9999999mbit 1.gbit .5gbit""".replace("\n    ", " ").split(" "),
)
def test_nothing_else_is_a_rate(text: str) -> None:
    """One message shows what was received. `_` stands for white space."""
    text = text.replace("_", "\n")

    with pytest.raises(RefusalError, match="A rate must read like") as refused:
        parse_rate(text)

    assert refused.value.received == repr(text)


@pytest.mark.parametrize(
    ("shell", "why"),
    [
        ("exec sleep 3600", "its first process says nothing for 0.2 s. Received: its log is empty"),
        ("exit 3", "its first process ended. Received: its log is empty"),
    ],
)
def test_release(shell: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait is limited, because a process that makes a lab keeps all others from making one."""
    monkeypatch.setattr(names, "LABS", tmp_path)
    monkeypatch.setattr(hosts_room, "START_S", 0.2 if "sleep" in shell else 30.0)
    (tmp_path / "blue").mkdir()
    (tmp_path / "blue" / "blue2.log").touch()
    with subprocess.Popen(
        ["sh", "-c", shell], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            with pytest.raises(RefusalError, match=f"Host blue2 did not start: {why}"):
                hosts_room.release(host(2, 0.25, (1,)), process)
        finally:
            process.kill()
