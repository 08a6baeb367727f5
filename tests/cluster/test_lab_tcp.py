"""TCP's congestion control on hosts of a lab: chosen when it is made, and kept in its file."""

import sys
from pathlib import Path

import pytest

from ringside.lab.lab import Lab
from ringside.lab.login import one_at_a_time
from tests.cluster.test_lab import Remote, ringside

pytestmark = pytest.mark.nightly
TCP = Path("/proc/sys/net/ipv4")


def own() -> list[str]:
    """What this machine has for itself; not while a lab is being made, which is for others."""
    files = ("tcp_congestion_control", "tcp_allowed_congestion_control")
    with one_at_a_time():
        return [(TCP / file).read_text() for file in files]


@pytest.mark.parametrize(
    ("flags", "expected"), [((), "cubic"), (("--congestion-control", "reno"), "reno")]
)
def test_every_connection_from_a_host_has_it(
    other_name: str, remote: Remote, flags: tuple[str, ...], expected: str
) -> None:
    """Of whatever program; and the machine keeps its own, and what it allows."""
    before = own()
    script = (
        "import socket; s = socket.create_connection(({!r}, 22)); "
        "print(s.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b'\\0').decode())"
    )

    made = ringside("up", "--name", other_name, "--hosts", "2", *flags)

    assert made.returncode == 0, made.stderr
    assert f"TCP: {expected}" in made.stdout
    hosts = Lab.find(other_name).hosts
    for host, other in (hosts, hosts[::-1]):
        asked = remote(host.name, [sys.executable, "-c", script.format(other.address)])
        assert asked.stdout == f"{expected}\n", asked.stderr
    assert own() == before
