"""Hostfiles: one `host slots=N` a line, read the same for every launcher."""

import re
from pathlib import Path

from pydantic import PositiveInt

from ringside_core.specs.errors import RefusalError
from ringside_core.specs.noun import Noun
from ringside_core.text import is_whole_number

_LINE = re.compile(r"(?P<name>[A-Za-z0-9._:\-]+)(?:\s+slots=(?P<slots>\S+))?\s*")
# The form of horovodrun's -H, which people type by mistake.
_WITH_SLOTS = re.compile(r"(?P<name>[^:]+):(?P<slots>[0-9]*)")
LONGEST_LABEL = 63  # RFC 1035
MOST_SLOTS = 1_000_000


class Host(Noun):
    """A machine, and how many replicas it may run."""

    name: str
    slots: PositiveInt = 1


def parse_hostfile(text: str, *, origin: str = "hostfile") -> tuple[Host, ...]:
    """Read `host slots=N` lines in order; empty lines and `#` comments are ignored.

    Horovod's own parser fails at a comment or an empty line with an IndexError. So launchers get
    the hosts from here, and never the file itself.

    Raises:
        RefusalError: a malformed line, `slots=0`, a host named twice, or no host at all.
    """
    hosts: dict[str, Host] = {}
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.partition("#")[0].strip()
        if not line:
            continue
        where = f"{origin}, line {number}: {raw.strip()!r}"
        if line.count(":") > 1 or line.startswith("["):
            raise RefusalError(
                "A host must be called by its name or its IPv4 address.",
                received=where,
                advice="Give the IPv6 address a name in /etc/hosts or ~/.ssh/config.",
            )
        match = _LINE.fullmatch(line)
        if match is None:
            raise RefusalError("A hostfile line must read `host slots=N`.", received=where)
        _refuse_name(match["name"], where)
        slots = match["slots"] or "1"
        if not is_whole_number(slots) or not 1 <= int(slots) <= MOST_SLOTS:
            raise RefusalError(
                f"slots must be a whole number of at least 1 and at most {MOST_SLOTS:,}.",
                received=where,
                advice="Remove the line to leave the host out.",
            )
        if match["name"].lower() in hosts:  # to a resolver capitals are no others
            raise RefusalError(
                "A host may stand in a hostfile once.",
                received=where,
                advice="Add its slots up in one line.",
            )
        hosts[match["name"].lower()] = Host(name=match["name"], slots=int(slots))
    if not hosts:
        raise RefusalError(
            "A hostfile must name at least one host.",
            received=origin,
            advice="Example line: localhost slots=4",
        )
    return tuple(hosts.values())


def _refuse_name(name: str, where: str) -> None:
    """Refuse a name that no resolver accepts, or that ssh would take for an option."""
    if with_slots := _WITH_SLOTS.fullmatch(name):
        raise RefusalError(
            "A hostfile line must read `host slots=N`.",
            received=where,
            advice=f"Write `{with_slots['name']} slots={with_slots['slots'] or 1}`.",
        )
    labels = name.removesuffix(".").split(".")
    if (
        ":" in name
        or not name[0].isalnum()
        or not all(1 <= len(label) <= LONGEST_LABEL for label in labels)
    ):
        raise RefusalError(
            "A host's name must begin with a letter or a digit, have no colon, and 1 to "
            f"{LONGEST_LABEL} characters between its dots.",
            received=where,
        )


def read_hostfile(path: Path) -> tuple[Host, ...]:
    """Read a hostfile from disk."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RefusalError("The hostfile must be a readable text file.", received=error) from None
    return parse_hostfile(text, origin=str(path))


def assign_slots(hosts: tuple[Host, ...], replicas: int) -> tuple[Host, ...]:
    """Put replicas on the hosts in order; the slots in the result are the used ones.

    Raises:
        RefusalError: more replicas than slots.
    """
    available = sum(host.slots for host in hosts)
    if replicas > available:
        raise RefusalError(
            "There must be a slot for each replica.",
            received=f"{replicas} replicas, {available} slots on "
            + ", ".join(f"{host.name} ({host.slots})" for host in hosts),
            advice=f"Use --replicas {available} or fewer, or add slots.",
        )
    used: list[Host] = []
    for host in hosts:
        take = min(host.slots, replicas)
        if take:
            used.append(Host(name=host.name, slots=take))
        replicas -= take
    return tuple(used)
