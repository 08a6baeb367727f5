"""What the checks of hosts make of the hosts' answers: every problem, by the host's name."""

import dataclasses
import hashlib
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from launch import Site
from launch.interrupts import Interrupts
from launch.remote import host_checks, host_facts, ssh
from launch.remote.host_checks import check_hosts, usable_hosts
from launch.remote.host_facts import interfaces
from launch.site import interface_to
from ringside_core.code_version import code_version
from ringside_core.specs import Host, Placement, RefusalError, RunSpec, Topology
from tests.unit.launch.reached import DIRECT, reached_by
from tests.unit.stats.factory import spec_of

VERSIONS = {"Python": "3.11.2", "tensorflow": "2.21.0", "horovod": "0.28.1", "Ringside": "ab"}


def said(number: int, **other: Any) -> dict[str, Any]:
    """What a good host of a network of two, `a` and `b`, says."""
    return {
        "identity": f"boot/{number}",
        "versions": VERSIONS,
        "cores": 4,
        "interfaces": {"lo": ["127.0.0.1"], "eth7": [f"10.0.0.{number}"]},
        "addresses": {"a": "10.0.0.1", "b": "10.0.0.2"},
        "token": "secret",
        "writable": True,
        "missing": [],
        **other,
    }


class Network:
    """Two hosts and this machine, whose answers a test may change before it asks."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.here = said(9)
        self.hosts = {"a": said(1), "b": said(2)}
        self.clock = {"a": 0.0, "b": 0.0}
        self.unreached: dict[str, str] = {}
        self.site = site
        self.folder = folder
        self.specs: list[RunSpec] = []
        self.placement = Placement(hosts=(Host(name="a", slots=8), Host(name="b", slots=8)))

    def ask_all(
        self,
        names: Sequence[str],
        site: Site,
        questions: dict[str, Any],
        interrupts: Interrupts | None,
    ) -> dict[str, host_checks._Answer | ssh.NoAnswer]:
        """In place of connections."""
        return {
            name: ssh.NoAnswer(why=self.unreached[name])
            if name in self.unreached
            else host_checks._Answer(
                clock_offset_s=self.clock[name], clock_round_trip_s=0.5, said=self.hosts[name]
            )
            for name in names
        }

    def problems(self, **more: Any) -> list[str]:
        """The lines of the refusal; none if all is well."""
        try:
            check_hosts(self.placement, self.site, folder=self.folder, specs=self.specs, **more)
        except RefusalError as error:
            return str(error.received).split("\n  ")[1:]
        return []


@pytest.fixture
def network(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    """A network on which all is well."""
    network = Network(site, tmp_path / "runs" / "new")
    monkeypatch.setattr(host_checks, "_ask_all", network.ask_all)
    monkeypatch.setattr(host_facts, "facts", lambda questions: network.here)
    monkeypatch.setattr("secrets.token_hex", lambda size: "secret")
    yield network
    assert list(tmp_path.iterdir()) == []


def test_all_problems_at_once(network: Network) -> None:
    """Every problem of every host is in one message."""
    network.unreached["a"] = "its name is not known here"
    network.hosts["b"] |= {
        "versions": {**VERSIONS, "tensorflow": "2.17.0", "horovod": "0.28.0"},
        "token": "",
        "missing": ["/data/mnist"],
    }
    network.clock["b"] = -1.5

    assert network.problems() == [
        "a: its name is not known here",
        "b: horovod is 0.28.0 there, 0.28.1 here",
        "b: tensorflow is 2.17.0 there, 2.21.0 here",
        f"b: it does not see {network.folder}: results need a folder that all hosts share",
        "b: /data/mnist is not there",
        "b: its clock is -1.5 s off; set both by NTP",
    ]


@pytest.mark.parametrize(("offset", "bad"), [(1.2, False), (-1.2, False), (1.3, True)])
def test_half_the_round_trip_is_taken_off_a_clock(
    offset: float, bad: bool, network: Network
) -> None:
    """With a round trip of 0.5 s, an offset of 1.25 s may really be one second."""
    network.clock["a"] = offset

    assert bool(network.problems()) is bad


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda n: n.hosts["a"].update(writable=False), "a: it may not write in {folder}"),
        # What the machine says of itself shows that the hostfile names it twice.
        (
            lambda n: n.hosts["b"].update(identity="boot/1"),
            "b: the same machine as a; name it once, its slots added up",
        ),
        # Debian gives 127.0.1.1 to a machine's own name; others could not reach what listens there.
        (
            lambda n: n.hosts["a"]["addresses"].update(a="127.0.1.1"),
            "a: on a the name a means 127.0.1.1, not 10.0.0.1 of eth7; see /etc/hosts there",
        ),
        # An alias in ~/.ssh/config helps only ssh.
        (
            lambda n: n.here["addresses"].update(a=""),
            "a: only ssh knows the name; put it into DNS or /etc/hosts",
        ),
    ],
)
def test_a_problem_of_a_host(
    change: Callable[[Network], object], problem: str, network: Network
) -> None:
    """Of the folder of the results, or of its name."""
    change(network)

    assert network.problems() == [problem.format(folder=network.folder)]


def test_hosts_with_a_problem_are_not_usable(network: Network) -> None:
    """The others are, with the reasons beside them; no servers are placed where none can be."""
    network.placement = network.placement.replace(servers_on=("b",))
    network.unreached["b"] = "no answer"

    there, problems = usable(network)

    assert (there.names, there.servers_on, problems) == (("a",), (), ["b: no answer"])


def test_a_problem_of_this_machine_makes_no_host_unusable(network: Network) -> None:
    """It is reported as it is."""
    del network.here["interfaces"]["eth7"]

    with pytest.raises(RefusalError, match="this machine: no interface eth7"):
        usable(network)


def usable(network: Network) -> tuple[Placement, list[str]]:
    """As a run asks that may have fewer replicas."""
    return usable_hosts(
        network.placement,
        network.site,
        folder=network.folder,
        spec=spec_of("horovod"),
        interrupts=Interrupts(),
    )


@pytest.mark.parametrize(
    ("backend", "topology", "insist", "expected"),
    [
        ("horovod", Topology(processes_per_host=6), False, ["a: 6 replicas on 4 usable cores"]),
        ("mirrored", Topology(replicas_per_process=5), False, ["a: 5 replicas on 4 usable cores"]),
        ("horovod", Topology(processes_per_host=6), True, []),
        ("horovod", Topology(hosts=2, processes_per_host=4), False, []),
    ],
)
def test_more_replicas_than_cores(
    backend: str, topology: Topology, insist: bool, expected: list[str], network: Network
) -> None:
    """The slots that the run uses count, not those of the file; --oversubscribe allows more."""
    network.specs = [spec_of(backend, topology=topology, global_batch=120)]
    network.placement = network.placement.replace(oversubscribe=insist)

    assert network.problems() == [f"{one} (--oversubscribe to insist)" for one in expected]


def test_the_digest_of_code(tmp_path: Path) -> None:
    """It covers every Python file of the rooms and nothing else; what is missing is an error."""
    for name in (
        "train.py",
        "trainers/__init__.py",
        "trainers/a/b.py",
        "tests/__init__.py",
        "x/y.py",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(f"# {name}")
    content = b"".join(
        f"{name}\0# {name}\0".encode()
        for name in ("train.py", "trainers/__init__.py", "trainers/a/b.py")
    )

    assert code_version(root=tmp_path) == hashlib.sha256(content).hexdigest()
    assert code_version(("train.py",), root=tmp_path) != code_version(root=tmp_path)
    with pytest.raises(FileNotFoundError):
        code_version(("trainers", "gone"), root=tmp_path)


def test_the_interface_to_this_machine() -> None:
    """127.0.0.1 is reached by the loopback interface; an unknown address by none."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        carrying = [name for name, there in interfaces().items() if "127.0.0.1" in there]

    assert [interface_to(("nowhere.invalid", "127.0.0.1"))] == carrying
    assert interface_to(("nowhere.invalid",)) == ""


def test_this_very_machine_is_ready(tmp_path: Path) -> None:
    """A hostfile with this machine alone is really checked, by a process and not over ssh."""
    facts = check_hosts(
        Placement(hosts=(Host(name="localhost"),)), Site.here(), folder=tmp_path / "new"
    )

    assert facts["localhost"].interface == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("python", "words"),
    [
        ("echo ready; read -r q; printf 17634; exit 3", "b.invalid: exit 3"),
        ("echo ready; read -r q; echo 1.0; read -r q; echo late >&2; exit 3", "b.invalid: late"),
        ('echo hello; exec {python} "$@"', "b.invalid: {folder}/python there says 'hello', {no}"),
        (
            "echo ready; echo nan; echo '{{}}'; cat",
            "b.invalid: {folder}/python there says '{{}}', {no}",
        ),
    ],
)
def test_a_host_that_breaks_off(
    python: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it ends at any point, that is this host's problem, in its own words if it said some.

    A wrapper in place of Python may print anything.
    """
    reached_by(DIRECT, tmp_path, monkeypatch)
    script = python.format(python=sys.executable)
    (tmp_path / "python").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "python").chmod(0o755)

    with pytest.raises(RefusalError) as refused:
        check_hosts(
            Placement(hosts=(Host(name="b.invalid"),), interface="lo"),
            dataclasses.replace(Site.here(), python=str(tmp_path / "python")),
            folder=tmp_path / "new",
        )

    no = "which is no answer; is it a wrapper?"
    assert words.format(folder=tmp_path, no=no) in str(refused.value.received).split("\n  ")
    assert not list(tmp_path.glob(".ringside-*"))


def test_a_host_that_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A login shell may print what looks like an answer; only the host's own is believed."""
    reached_by(f"echo ready; echo 5; {DIRECT}", tmp_path, monkeypatch)
    hosts = Placement(hosts=(Host(name="b.invalid"),), interface="lo")

    with pytest.raises(RefusalError) as refused:
        check_hosts(hosts, Site.here(), folder=tmp_path / "new")

    assert str(refused.value.received).split("\n  ")[1:] == [
        "b.invalid: only ssh knows the name; put it into DNS or /etc/hosts",
        "b.invalid: on b.invalid the name b.invalid means nothing, not 127.0.0.1 of lo; "
        "see /etc/hosts there",
    ]


@pytest.mark.parametrize(
    ("workload", "data_dir", "asked"),
    [
        ("mnist", None, ["/home/me", "{cache}/ringside/data/mnist"]),
        ("mnist", "/mine", ["/home/me", "/mine"]),
        ("mnist", "gs://bucket/data", ["/home/me"]),
        ("my.py:one", "mine", ["/home/me", "/home/me/my.py", "/home/me/mine"]),
    ],
)
def test_what_must_be_there(
    workload: str,
    data_dir: str | None,
    asked: list[str],
    site: Site,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every host is asked for data that is prepared here, wherever it is kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "ringside" / "data" / "mnist").mkdir(parents=True)
    (tmp_path / "ringside" / "data" / "digits").mkdir()
    spec = spec_of("serial", workload=workload, data_dir=data_dir)

    assert host_checks._paths([spec], site) == [one.format(cache=tmp_path) for one in asked]
