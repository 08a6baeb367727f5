"""Bridge, links and their rates, made with `ip` and `tc`."""

import contextlib
import ipaddress
import json
import re
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from ringside.lab.command import run
from ringside.lab.names import LabHost, interface_of, lab_of_numbered
from ringside_core.specs import RefusalError

HEAD = 254  # last part of this machine's own address on a lab's bridge
# A bucket of one millisecond, so that little beyond the rate gets through at once. It holds at
# least two full frames; tbf cuts what is larger than the bucket (GSO: up to 64 KiB) into frames.
BURST_S = 0.001
LEAST_BURST_BYTES = 2 * 1514
# The queue of a switch port: 50 ms at the rate, and room for some segments of 64 KiB.
QUEUE_S = 0.05
LEAST_QUEUE_BYTES = 4 * 65536
TCP = Path("/proc/sys/net/ipv4")
AVAILABLE = "tcp_available_congestion_control"
ALLOWED = "tcp_allowed_congestion_control"
_RATE = re.compile(r"(?P<number>[0-9]{1,6}(\.[0-9]{1,6})?)(?P<unit>[mg]bit)")
_UNITS = {"gbit": 1_000_000_000, "mbit": 1_000_000}  # tc: decimal, per second
SLOWEST_BITS_PER_S = 1_000_000
FASTEST_BITS_PER_S = 100_000_000_000


def parse_rate(text: str) -> int:
    """Bits per second of `100mbit` or `2.5gbit`.

    Raises:
        RefusalError: another form, or outside 1mbit to 100gbit.
    """
    match = _RATE.fullmatch(text)
    bits = round(float(match["number"]) * _UNITS[match["unit"]]) if match else 0
    if not SLOWEST_BITS_PER_S <= bits <= FASTEST_BITS_PER_S:
        raise RefusalError(
            "A rate must read like 100mbit or 2.5gbit, from 1mbit to 100gbit.",
            received=repr(text),
            advice="mbit is 1,000,000 bits per second, gbit 1,000 times that.",
        )
    return bits


def format_rate(bits_per_s: int) -> str:
    """As `parse_rate` reads it: 1000000000 is 1gbit.

    The kernel keeps whole bytes per second, so a rate read back may be rounded by 7 bits/s.
    """
    unit = "gbit" if bits_per_s >= _UNITS["gbit"] else "mbit"
    return f"{bits_per_s / _UNITS[unit]:.6f}".rstrip("0").rstrip(".") + unit


def free_subnet(taken: Iterable[str]) -> int:
    """The first x of 10.77.x.0/24 that no route of this machine leads into.

    Args:
        taken: destinations of its routes, as `ip route` prints them.

    Raises:
        RefusalError: none is free.
    """
    used = [ipaddress.ip_network(one) for one in taken if one != "default"]
    for third in range(256):
        subnet = ipaddress.ip_network(f"10.77.{third}.0/24")
        if not any(subnet.overlaps(one) for one in used):
            return third
    raise RefusalError(
        "A lab needs a subnet that this machine has no route into.",
        received="routes into every 10.77.x.0/24",
        advice="Take a lab down: ringside lab down --name …",
    )


def routes() -> list[str]:
    """Destinations that this machine has routes to (IPv4)."""
    listed = json.loads(run("ip", "-4", "-json", "route", "show", "table", "all"))
    return [one["dst"] for one in listed if one.get("type") != "broadcast"]


def connect(name: str, head_address: str, hosts: Collection[LabHost], bits_per_s: int) -> None:
    """Make namespaces, a bridge, and a link of this rate from each host to it."""
    bridge = interface_of(name)
    outside = [
        f"link add {bridge} type bridge stp_state 0 forward_delay 0",
        f"link set {bridge} addrgenmode none",
        f"address add {head_address}/24 broadcast + dev {bridge}",
        f"link set {bridge} up",
    ]
    for host in hosts:
        port = host.namespace
        outside += [
            f"netns add {host.namespace}",
            f"link add {port} type veth peer name {bridge} netns {host.namespace}",
            f"link set {port} addrgenmode none master {bridge} up",
        ]
    run("ip", "-batch", "-", stdin="\n".join(outside) + "\n")
    for host in hosts:
        # No IPv6 on the link, so that every stack has only one address to choose. The head forwards
        # nothing, but hosts reach its own other addresses, as in a cluster.
        inside = [
            "link set lo up",
            f"link set {bridge} addrgenmode none",
            f"address add {host.address}/24 broadcast + dev {bridge}",
            f"link set {bridge} up",
            f"route add default via {head_address}",
        ]
        run("ip", "-netns", host.namespace, "-batch", "-", stdin="\n".join(inside) + "\n")
    for host in hosts:
        shape(host, bits_per_s, first=True)


def check_congestion_control(name: str) -> None:
    """Refuse what the kernel does not have, not even as a module. A module loaded for it stays."""
    if name in _listed(AVAILABLE):
        return
    with contextlib.suppress(RefusalError, OSError):  # it is not there, or it has no such module
        run("modprobe", f"tcp_{name}")
    there = _listed(AVAILABLE)
    if there and name not in there:
        raise RefusalError(
            "Hosts can use a congestion control that this machine's kernel has.",
            received=repr(name),
            advice=f"It has {', '.join(there)}, and `modprobe tcp_{name}` does not bring it. "
            "Choose one that is there with --congestion-control.",
        )


def set_congestion_control(hosts: Iterable[LabHost], name: str) -> None:
    """Make it the default of these hosts, so that every connection from them uses it.

    Nothing is written that is so already: the kernel's files may be read-only, in a container.

    Raises:
        RefusalError: they have another, and that cannot be changed from here.
    """
    file = str(TCP / "tcp_congestion_control")
    before = {one: _on(one, "cat", file).strip() for one in hosts}
    others = [one for one, chosen in before.items() if chosen != name]
    if not others:
        return
    try:
        with _allowed_to_all(name):
            for one in others:
                _on(one, "tee", file, stdin=name)
    except (OSError, RefusalError) as error:
        possible = " or ".join(dict.fromkeys((before[others[0]], *_listed(ALLOWED))))
        raise RefusalError(
            "A congestion control must be one that can be set on a lab's hosts from here.",
            received=f"{name}: {error.received if isinstance(error, RefusalError) else error}",
            advice="Take what they have already, or what is allowed to everybody: "
            f"--congestion-control {possible}.",
        ) from None


@contextlib.contextmanager
def _allowed_to_all(name: str) -> Iterator[None]:
    """A namespace may choose what the machine allows to everybody, and keeps its choice."""
    # So what is not on that list is there for this moment only. A kill -9 leaves it there, which
    # does no harm: it changes no connection of anybody who does not ask for it by name.
    before = _listed(ALLOWED)
    if not before or name in before:
        yield
        return
    (TCP / ALLOWED).write_text(" ".join((*before, name)))
    try:
        yield
    finally:
        (TCP / ALLOWED).write_text(" ".join(before))


def _listed(file: str) -> list[str]:
    """One of the kernel's lists. It is empty in a container before Linux 5.7, which hides it."""
    try:
        return (TCP / file).read_text().split()
    except FileNotFoundError:
        return []


def _on(host: LabHost, *command: str, stdin: str = "") -> str:
    return run("ip", "netns", "exec", host.namespace, *command, stdin=stdin)


def shape(host: LabHost, bits_per_s: int, *, first: bool = False) -> None:
    """Limit what leaves the host, and what reaches it, to this many bits per second.

    A rate is changed by a new queue in place of the old, whose packets are lost as in a switch that
    is set again. `tc qdisc change` would keep them; but one that is larger than a slower rate's
    bucket never gets through, and nothing behind it either: the link would stall for good.

    Args:
        host: whose link.
        bits_per_s: the rate.
        first: there is no queue yet.
    """
    burst = max(round(bits_per_s / 8 * BURST_S), LEAST_BURST_BYTES)
    limit = max(round(bits_per_s / 8 * QUEUE_S), LEAST_QUEUE_BYTES)
    bucket = f"tbf rate {bits_per_s}bit burst {burst} limit {limit}"
    for where, device in (((), host.namespace), (("-netns", host.namespace), host.interface)):
        lines = [] if first else [f"qdisc delete dev {device} root"]
        lines.append(f"qdisc add dev {device} root {bucket}")
        run("tc", *where, "-batch", "-", stdin="\n".join(lines) + "\n")


def rates(host: LabHost) -> tuple[int, int]:
    """Bits per second that may leave and reach the host, as the kernel has them."""
    inside = ("-netns", host.namespace)
    out = run("tc", "-json", *inside, "qdisc", "show", "dev", host.interface)
    into = run("tc", "-json", "qdisc", "show", "dev", host.namespace)
    return _tbf_rate(out), _tbf_rate(into)


def _tbf_rate(listing: str) -> int:
    for one in json.loads(listing):
        if one["kind"] == "tbf":
            return 8 * int(one["options"]["rate"])  # tc prints bytes per second
    return 0


def set_port(host: LabHost, *, up: bool) -> None:
    """Cut or mend the link at the bridge. The host sees no error; its packets just vanish."""
    run("ip", "link", "set", host.namespace, "up" if up else "down")


def is_cut(host: LabHost) -> bool:
    """Whether the link has been cut."""
    (port,) = json.loads(run("ip", "-json", "link", "show", host.namespace))
    return "UP" not in port["flags"]


def check_forwarding(first: LabHost, last: LabHost) -> None:
    """Refuse if hosts do not reach each other: a firewall of this machine may block bridges."""
    connect_to = f"import socket; socket.create_connection(({last.address!r}, 22), timeout=5)"
    python = (sys.executable, "-I", "-S", "-c", connect_to)
    try:
        _on(first, *python)
    except RefusalError:
        raise RefusalError(
            "Hosts of the lab must reach each other over the bridge.",
            received=f"{last.name} does not answer {first.name}",
            advice="Where a firewall drops what this machine forwards (Docker sets that up): "
            "sysctl net.bridge.bridge-nf-call-iptables=0",
        ) from None


def interfaces(name: str) -> list[str]:
    """The lab's bridge and its ports that are there."""
    listed = [one["ifname"] for one in json.loads(run("ip", "-json", "link", "show"))]
    return [one for one in listed if one == interface_of(name) or lab_of_numbered(one) == name]


def remove(name: str, namespaces: Iterable[str]) -> None:
    """Remove namespaces, with the links that end in them, and the bridge."""
    for one in namespaces:
        run("ip", "netns", "delete", one)
    for one in interfaces(name):
        try:
            run("ip", "link", "delete", one)
        except RefusalError:  # the kernel removes the links of a namespace a little later
            if one in interfaces(name):
                raise
