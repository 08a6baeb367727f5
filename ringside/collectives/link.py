"""What the links between hosts really carry, measured by a plain TCP transfer."""

import json
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from launch import Site
from launch.remote import ssh
from ringside_core.specs import Link, RefusalError

SCRIPT = str(Path(__file__).resolve().parent / "transfer.py")
SECONDS = 2.0
WARM_UP_S = 1.0  # then TCP has found its rate, and the queues on the way are full
PATIENCE_S = 45.0  # besides: ssh connects, Python starts, long queues become empty


def measure_links(
    addresses: Mapping[str, str], site: Site, *, seconds: float = SECONDS
) -> tuple[Link, ...]:
    """Measure from each host to the next, and from the last to the first, one after the other.

    Args:
        addresses: of the hosts, by name; fewer than two hosts have no links.
        site: this machine.
        seconds: of each transfer, after a warm-up.

    Raises:
        RefusalError: a host is not reached, or nothing comes through.
    """
    names = tuple(addresses) if len(addresses) > 1 else ()
    return tuple(
        _link(site, sender, receiver, addresses[receiver], seconds)
        for sender, receiver in zip(names, (*names[1:], *names[:1]), strict=True)
    )


def _link(site: Site, sender: str, receiver: str, address: str, seconds: float) -> Link:
    """The receiver listens and names its port; then the sender starts, within its talk."""

    def receive() -> Generator[bytes, str, dict[str, Any]]:
        port = (yield b"").strip()
        found = _talk(site, sender, seconds, send, "send", address or receiver, port)
        return found | json.loads((yield b""))

    def send() -> Generator[bytes, str, dict[str, Any]]:
        control = (yield b"").strip()
        yield b""  # until it has ended
        return {"congestion_control": control}

    asked = ("receive", address, str(WARM_UP_S), str(seconds))
    return Link(sender=sender, receiver=receiver, **_talk(site, receiver, seconds, receive, *asked))


def _talk(
    site: Site, host: str, seconds: float, talk: ssh.Talk[dict[str, Any]], *arguments: str
) -> dict[str, Any]:
    found = ssh.talk_to_all(
        {host: (site.python, "-I", "-S", SCRIPT, *arguments)},
        talk,
        limit_s=seconds + WARM_UP_S + PATIENCE_S,
        here=[host] if site.is_local(host) else [],
    )[host]
    if isinstance(found, ssh.NoAnswer):
        raise RefusalError(
            "A plain transfer between two hosts must come through.",
            received=f"{host}: {found.why}",
            advice=f"Try `ssh {host} true`; is there a firewall between the hosts?",
        )
    return found
