"""The newest measurement of the stacks, kept for later comparisons on this machine."""

import functools
import hashlib
from pathlib import Path

from collectives.request import LEAST_REPETITIONS
from collectives.stacks import STACKS
from measure.machine import machine_facts
from specs import Communication, RefusalError, write_whole
from specs.folders import cache_dir

ROOT = Path(__file__).resolve().parent.parent
# Whatever decides what is timed, and how its processes are started.
ROOMS = ("specs", "legacy_keras", "backends", "launch", "collectives")
PROGRAMS = ("allreduce_task.py", "trainers/process.py", "measure/process.py")
FILE = "communication.json"
# With fewer, what lies between them is guessed; see measure.collectives.fit_cost_model.
LEAST_SIZES = 4


def keep(communication: Communication) -> Path:
    """Write it where `find_communication` looks."""
    path = cache_dir() / FILE
    write_whole(path, communication.to_json())
    return path


def why_not_kept(communication: Communication, *, usable_cores: int) -> str:
    """Why a later comparison must not predict from it; empty: it may.

    Args:
        communication: a measurement that is through.
        usable_cores: of this process, shared out among the ranks.
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


def find_communication() -> Communication | None:
    """What was measured last, if on this machine by this code; else None."""
    path = cache_dir() / FILE
    try:
        found = Communication.from_json(path.read_text(encoding="utf-8"), origin=str(path))
    except (OSError, UnicodeDecodeError, RefusalError):
        return None
    same = found.code_version == code_version() and found.machine == machine_facts()
    return found if same else None


@functools.cache
def code_version() -> str:
    """SHA-256 of the code that decides what is timed."""
    sha = hashlib.sha256()
    files = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    for path in sorted([*files, *(ROOT / program for program in PROGRAMS)]):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        sha.update(f"{path.relative_to(ROOT)} {digest}\n".encode())
    return sha.hexdigest()
