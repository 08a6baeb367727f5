"""The newest measurement of the stacks, kept for later comparisons on the same hosts."""

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path

from collectives.request import LEAST_REPETITIONS
from collectives.stacks import STACKS
from measure.machine import machine_facts
from specs import Communication, Link, RefusalError, write_whole
from specs.folders import cache_dir

ROOT = Path(__file__).resolve().parent.parent
# Whatever decides what is timed, and how its processes are started.
ROOMS = ("specs", "legacy_keras", "backends", "launch", "collectives")
PROGRAMS = ("allreduce_task.py", "trainers/process.py", "measure/process.py")
FILE = "communication.json"
# A link whose rate has changed by more is another link.
SAME_RATE = 0.1
# With fewer, what lies between them is guessed; see measure.collectives.fit_cost_model.
LEAST_SIZES = 4


def keep(communication: Communication) -> Path:
    """Write it where `find_communication` looks."""
    path = _file(communication.hosts)
    write_whole(path, communication.to_json())
    return path


def _file(hosts: Sequence[str]) -> Path:
    """One for this machine, and one for each row of hosts: neither says anything of the other."""
    if not hosts:
        return cache_dir() / FILE
    digest = hashlib.sha256("\n".join(dict.fromkeys(hosts)).encode()).hexdigest()
    return cache_dir() / f"{Path(FILE).stem}-{digest[:16]}.json"


def why_not_kept(communication: Communication, *, usable_cores: int) -> str:
    """Why a later comparison must not predict from it; empty: it may.

    Args:
        communication: a measurement that is through.
        usable_cores: of this process, or of all hosts, shared out among the ranks.
    """
    if not communication.passed:
        return "a stack failed, or elements were wrong"
    if missing := set(STACKS) - {stack.stack for stack in communication.stacks}:
        return f"it is without {', '.join(name for name in STACKS if name in missing)}"
    if communication.num_ranks > usable_cores:
        return f"it has more ranks ({communication.num_ranks}) than usable cores ({usable_cores})"
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
    hosts: Sequence[str] = (), links: Sequence[Link] = ()
) -> Communication | None:
    """What was measured last, if on these hosts by this code; else None.

    Args:
        hosts: of the runs to come, in their order; empty: this machine.
        links: between them, as they are now; empty: not looked at.
    """
    path = _file(hosts)
    try:
        found = Communication.from_json(path.read_text(encoding="utf-8"), origin=str(path))
    except (OSError, UnicodeDecodeError, RefusalError):
        return None
    same = found.code_version == code_version() and found.machine == machine_facts()
    return found if same and _alike(found.links, links) else None


def _alike(then: Sequence[Link], now: Sequence[Link]) -> bool:
    """Whether every link that is known of both times carries what it did."""
    rates = {(link.sender, link.receiver, link.tool): link.bits_per_s for link in then}
    before = [(link, rates.get((link.sender, link.receiver, link.tool))) for link in now]
    return all(
        rate is None or abs(link.bits_per_s / rate - 1) <= SAME_RATE for link, rate in before
    )


@functools.cache
def code_version() -> str:
    """SHA-256 of the code that decides what is timed."""
    sha = hashlib.sha256()
    files = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    for path in sorted([*files, *(ROOT / program for program in PROGRAMS)]):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        sha.update(f"{path.relative_to(ROOT)} {digest}\n".encode())
    return sha.hexdigest()
