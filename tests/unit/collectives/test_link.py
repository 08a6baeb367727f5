"""A plain transfer between two ends, here over loopback, and who ends when the other does."""

import dataclasses
import json
import select
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from launch import Site
from ringside.collectives import link
from ringside.collectives.link import measure_links
from ringside_core.specs import RefusalError

TWO = {"here": "127.0.0.1", "there": "127.0.0.1"}
CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    """Two names of this machine: no ssh."""
    monkeypatch.setattr(link, "WARM_UP_S", 0.1)
    return dataclasses.replace(Site.here(), names=frozenset(TWO))


@pytest.fixture
def left_over() -> Callable[[], list[str]]:
    """Processes that this one has started and that still run."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    return lambda: [
        " ".join(child.cmdline())
        for child in psutil.Process().children(recursive=True)
        if child.pid not in before and child.status() != psutil.STATUS_ZOMBIE
    ]


def test_each_host_sends_to_the_next(site: Site, left_over: Callable[[], list[str]]) -> None:
    """A ring of two, both ways; the kernel says which congestion control; no process stays."""
    assert measure_links({"here": "127.0.0.1"}, site) == ()

    found = measure_links(TWO, site, seconds=0.2)

    assert [(one.sender, one.receiver) for one in found] == [("here", "there"), ("there", "here")]
    assert all(one.seconds >= 0.2 for one in found)
    assert all(one.bits_per_s == one.bytes * 8 / one.seconds for one in found)
    assert {one.congestion_control for one in found} == {CONTROL.read_text().strip()}
    assert left_over() == []


def test_an_end_that_fails_is_named(site: Site, left_over: Callable[[], list[str]]) -> None:
    """The message has its last words, and no process stays."""
    elsewhere = {**TWO, "there": "192.0.2.1"}  # an address of no interface

    with pytest.raises(RefusalError, match=r"there: OSError: .*assign requested address"):
        measure_links(elsewhere, site, seconds=0.1)

    assert left_over() == []


def started(*arguments: str) -> "subprocess.Popen[str]":
    """One end."""
    return subprocess.Popen(
        (sys.executable, "-I", "-S", link.SCRIPT, *arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_what_came_is_counted_after_the_warm_up() -> None:
    """What arrives first starts the clock; only what comes after it counts."""
    with started("receive", "127.0.0.1", "0", "0.3") as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with socket.create_connection(("127.0.0.1", port)) as connection:
            sent = 0
            while not select.select([process.stdout], [], [], 0.02)[0]:
                sent += connection.send(bytes(500))
        found = json.loads(process.stdout.readline())

    assert 0 < found["bytes"] <= sent - 500 and found["seconds"] >= 0.3


def test_an_end_ends_with_its_standard_input() -> None:
    """As when the connection that started it is lost; its port is free again."""
    with started("receive", "127.0.0.1", "0", "1") as process:
        assert process.stdin is not None and process.stdout is not None
        port = int(process.stdout.readline())

        process.stdin.close()

        assert process.wait(30) == 1
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", port))
