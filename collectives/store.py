"""The newest measurement of the stacks, kept for later comparisons on this machine."""

import functools
import hashlib
from pathlib import Path

from measure.machine import machine_facts
from specs import Communication, RefusalError, write_whole
from specs.folders import cache_dir

ROOT = Path(__file__).resolve().parent.parent
# Whatever decides what is timed, and how its processes are started.
ROOMS = ("specs", "legacy_keras", "backends", "launch", "collectives")
PROGRAMS = ("allreduce_task.py", "trainers/process.py", "measure/process.py")
FILE = "communication.json"


def keep(communication: Communication) -> Path:
    """Write it where `find_communication` looks."""
    path = cache_dir() / FILE
    write_whole(path, communication.to_json())
    return path


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
