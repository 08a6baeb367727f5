"""The newest measurement of the stacks, kept for later comparisons on the same hosts."""

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from launch.remote.host_checks import HostFacts
from ringside.collectives.stacks import STACKS
from ringside.stats.links import links_by_pair, same_link
from ringside_core.code_version import code_version as code_version_of
from ringside_core.folders import cache_dir
from ringside_core.readings.machine import machine_facts
from ringside_core.specs import Communication, Link, RefusalError, write_whole
from ringside_core.specs.noun import json_hash

# The code that decides what is timed and how its processes are started
# (tests/setup/test_rooms.py checks that this code imports nothing else of Ringside).
COVERED = (
    "allreduce_task.py",
    "backends",
    "launch",
    "ringside/collectives",
    "ringside/stats/collectives.py",
    "ringside/stats/figure.py",
    "ringside/stats/links.py",
    "ringside_core",
    "trainers/process.py",
)
LEAST_SIZES = 4  # for a cost model
NO_FACTS: Mapping[str, HostFacts] = {}


def keep(communication: Communication, facts: Mapping[str, HostFacts] = NO_FACTS) -> Path:
    """Write it where `find_communication` finds it for the same hosts, addresses and cores."""
    path = _file(communication.hosts, facts)
    write_whole(path, communication.to_json())
    return path


def _file(hosts: Sequence[str], facts: Mapping[str, HostFacts]) -> Path:
    row = [[host, facts[host].address, facts[host].cores] for host in hosts]
    return cache_dir() / f"communication-{json_hash(row)[:16]}.json"


def why_not_kept(communication: Communication, *, usable_cores: int) -> str:
    """Why a later comparison must not use a measurement; empty: it may."""
    if not communication.passed:
        return "a stack failed, or elements were wrong"
    if missing := set(STACKS) - {stack.stack for stack in communication.stacks}:
        return f"it is without {', '.join(name for name in STACKS if name in missing)}"
    ranks = max(Counter(communication.hosts).values(), default=communication.num_ranks)
    if ranks > usable_cores:
        return f"it has more ranks ({ranks}) on a host than usable cores ({usable_cores})"
    sizes = max(len(stack.timings) for stack in communication.stacks)
    return "" if sizes >= LEAST_SIZES else f"it has {sizes} of at least {LEAST_SIZES} sizes"


def find_communication(
    hosts: Sequence[str] = (), links: Sequence[Link] = (), facts: Mapping[str, HostFacts] = NO_FACTS
) -> Communication | None:
    """The last measurement, if it is of these hosts (of each rank), links and code; else None."""
    path = _file(hosts, facts)
    try:
        found = Communication.from_json(path.read_text(encoding="utf-8"), origin=str(path))
    except (OSError, UnicodeDecodeError, RefusalError):
        return None
    then, now = links_by_pair(found.links), links_by_pair(links)
    same = (
        found.code_version == code_version()
        and found.machine == machine_facts()
        and then.keys() == now.keys()
        and bool(then or len(set(hosts)) < 2)
        and all(same_link(then[pair], now[pair]) for pair in then)
    )
    return found if same else None


@functools.cache
def code_version() -> str:
    """SHA-256 of the code that decides what is timed."""
    return code_version_of(COVERED)
