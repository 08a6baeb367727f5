"""Hostfiles: one `host slots=N` a line, read the same for every launcher."""

import re
from pathlib import Path

from pydantic import PositiveInt

from specs.errors import RefusalError
from specs.noun import Noun

_LINE = re.compile(r"(?P<name>[A-Za-z0-9._:\-\[\]]+)(?:\s+slots=(?P<slots>\S+))?\s*")


class Host(Noun):
    """A machine, and how many processes it may run."""

    name: str
    slots: PositiveInt = 1


def parse_hostfile(text: str, *, origin: str = "hostfile") -> tuple[Host, ...]:
    """Read `host slots=N` lines in order; empty lines and `#` comments are passed over.

    Horovod's own parser stops at a comment or an empty line with an IndexError; so launchers get
    the hosts from here, never the file itself.

    Args:
        text: content of the file.
        origin: its name, for messages.

    Raises:
        RefusalError: a malformed line, `slots=0`, a host named twice, or no host at all.
    """
    hosts: dict[str, Host] = {}
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.partition("#")[0].strip()
        if not line:
            continue
        where = f"{origin}, line {number}: {raw.strip()!r}"
        match = _LINE.fullmatch(line)
        if match is None:
            raise RefusalError("A hostfile line must read `host slots=N`.", received=where)
        slots = match["slots"] or "1"
        if not slots.isdigit() or int(slots) == 0:
            raise RefusalError(
                "slots must be a whole number of at least 1.",
                received=where,
                advice="Remove the line to leave the host out.",
            )
        if match["name"] in hosts:
            raise RefusalError(
                "A host may stand in a hostfile once.",
                received=where,
                advice="Add its slots up in one line.",
            )
        hosts[match["name"]] = Host(name=match["name"], slots=int(slots))
    if not hosts:
        raise RefusalError(
            "A hostfile must name at least one host.",
            received=origin,
            advice="Example line: localhost slots=4",
        )
    return tuple(hosts.values())


def read_hostfile(path: Path) -> tuple[Host, ...]:
    """Read a hostfile from disk."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RefusalError("The hostfile must be a readable text file.", received=error) from None
    return parse_hostfile(text, origin=str(path))


def assign_slots(hosts: tuple[Host, ...], processes: int) -> tuple[Host, ...]:
    """Fill the hosts in order with `processes` processes; the result's slots are those used.

    Raises:
        RefusalError: more processes than slots.
    """
    available = sum(host.slots for host in hosts)
    if processes > available:
        raise RefusalError(
            "There must be a slot for each process.",
            received=f"{processes} processes, {available} slots on "
            + ", ".join(f"{host.name} ({host.slots})" for host in hosts),
            advice=f"Use --replicas {available} or fewer, or add slots.",
        )
    used: list[Host] = []
    for host in hosts:
        take = min(host.slots, processes)
        if take:
            used.append(Host(name=host.name, slots=take))
        processes -= take
    return tuple(used)
