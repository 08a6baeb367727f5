"""The network interfaces of this machine."""

import socket

from launch.remote.host_facts import interfaces

DISCARD_PORT = 9


def interface_to(hosts: tuple[str, ...]) -> str:
    """The interface that the kernel would send through to the first host that has an address.

    Nothing is sent: a connected datagram socket only looks the route up. Empty when no host's name
    is known here, which the preflight says in better words.
    """
    for host in hosts:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((host, DISCARD_PORT))
            except (OSError, UnicodeError):  # the latter: no name could be so
                continue
            own = probe.getsockname()[0]
        return next((name for name, there in interfaces().items() if own in there), "")
    return ""


def own_addresses() -> set[str]:
    """Every IPv4 address of this machine."""
    return {address for addresses in interfaces().values() for address in addresses}
