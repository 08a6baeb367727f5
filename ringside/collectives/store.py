"""The newest measurement of the stacks, kept for later comparisons on the same hosts."""

import functools
import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ringside.collectives.request import LEAST_REPETITIONS
from ringside.collectives.stacks import STACKS
from ringside.stats.links import links_by_pair, same_link
from ringside_core.code_version import code_version as code_version_of
from ringside_core.folders import cache_dir
from ringside_core.readings.machine import machine_facts
from ringside_core.specs import Communication, Link, RefusalError, write_whole

# The code that decides what is timed and how its processes are started
# (tests/setup/test_rooms.py checks that this code imports nothing else of Ringside).
COVERED = (
    "allreduce_task.py",
    "backends",
    "launch",
    "ringside/collectives",
    "ringside/stats/links.py",
    "ringside_core",
    "trainers/process.py",
)
FILE = "communication.json"
# With fewer sizes, times between them are guesses; see ringside.stats.collectives.fit_cost_model.
LEAST_SIZES = 4
NOTHING_KNOWN: Mapping[str, Any] = MappingProxyType({})


def keep(
    communication: Communication,
    *,
    addresses: Mapping[str, str] = NOTHING_KNOWN,
    cores: Mapping[str, int] = NOTHING_KNOWN,
) -> Path:
    """Write it where `find_communication` finds it for the same hosts, addresses and cores."""
    path = _file(communication.hosts, addresses, cores)
    write_whole(path, communication.to_json())
    return path


def _file(hosts: Sequence[str], addresses: Mapping[str, str], cores: Mapping[str, int]) -> Path:
    """One file for this machine, and one for each row of hosts, because results differ.

    Another row has ranks in other places, another machine or network of the same name, or other
    cores.
    """
    if not hosts:
        return cache_dir() / FILE
    row = json.dumps([[host, addresses.get(host), cores.get(host)] for host in hosts])
    digest = hashlib.sha256(row.encode()).hexdigest()
    return cache_dir() / f"{Path(FILE).stem}-{digest[:16]}.json"


def why_not_kept(communication: Communication, *, usable_cores: int) -> str:
    """Why a later comparison must not predict from it; empty: it may.

    Args:
        communication: a finished measurement.
        usable_cores: of this process, or of the host with the fewest cores.
    """
    if not communication.passed:
        return "a stack failed, or elements were wrong"
    if missing := set(STACKS) - {stack.stack for stack in communication.stacks}:
        return f"it is without {', '.join(name for name in STACKS if name in missing)}"
    ranks = max(Counter(communication.hosts).values(), default=communication.num_ranks)
    if ranks > usable_cores:
        where = " on a host" if communication.hosts else ""
        return f"it has more ranks ({ranks}) than usable cores ({usable_cores}){where}"
    timed = [stack.timings for stack in communication.stacks if stack.timings]
    if not timed:
        return "no stack ran"
    sizes = min(len({one.size_bytes for one in timings}) for timings in timed)
    if sizes < LEAST_SIZES:
        return f"it has {sizes} of at least {LEAST_SIZES} sizes"
    times = min(len(one.seconds) for timings in timed for one in timings)
    if times < LEAST_REPETITIONS:
        return f"it has {times} of at least {LEAST_REPETITIONS} repetitions"
    return ""


def find_communication(
    hosts: Sequence[str] = (),
    links: Sequence[Link] = (),
    *,
    addresses: Mapping[str, str] = NOTHING_KNOWN,
    cores: Mapping[str, int] = NOTHING_KNOWN,
) -> Communication | None:
    """The last measurement, if it is of these hosts, these links and this code; else None.

    Args:
        hosts: of each rank of the runs to come; empty: this machine.
        links: between them, as they are now. Several hosts without known links find nothing:
            the links may have changed.
        addresses: of the hosts.
        cores: usable on each of them.
    """
    path = _file(hosts, addresses, cores)
    try:
        found = Communication.from_json(path.read_text(encoding="utf-8"), origin=str(path))
    except (OSError, UnicodeDecodeError, RefusalError):
        return None
    same = found.code_version == code_version() and found.machine == machine_facts()
    return found if same and alike(found.links, links, hosts=set(hosts)) else None


def alike(then: Sequence[Link], now: Sequence[Link], *, hosts: Collection[str]) -> bool:
    """Whether plain TCP measured the same links both times, and they still carry the same.

    Args:
        then: links at one time.
        now: links at another time.
        hosts: the hosts that they connect; several hosts must have links.
    """
    before, after = links_by_pair(then), links_by_pair(now)
    if before.keys() != after.keys() or (len(hosts) > 1 and not before):
        return False
    return all(same_link(before[pair], after[pair]) for pair in before)


@functools.cache
def code_version() -> str:
    """SHA-256 of the code that decides what is timed."""
    return code_version_of(COVERED)
