"""The processors that this process may use, and which are cores of their own."""

import os
from collections.abc import Sequence
from pathlib import Path

CPUS = Path("/sys/devices/system/cpu")


def usable_cores() -> tuple[int, ...]:
    """Processors that this process may use: one of each physical core first, then the others.

    Two threads of one core (hyper-threads) share its arithmetic, so they are not two cores. A
    caller that takes processors from the start gets whole cores as long as there are any.
    """
    seen: dict[int, int] = {}
    ranked = []
    for number in sorted(os.sched_getaffinity(0)):
        core = _physical_core(number)
        ranked.append((seen.get(core, 0), number))
        seen[core] = seen.get(core, 0) + 1
    return tuple(number for _, number in sorted(ranked))


def physical_cores(processors: Sequence[int]) -> tuple[int, ...]:
    """Of each processor, the core that it is a thread of, by the lowest number of its threads."""
    return tuple(map(_physical_core, processors))


def _physical_core(processor: int) -> int:
    """The processor itself if the machine does not say."""
    try:
        text = (CPUS / f"cpu{processor}/topology/thread_siblings_list").read_text(encoding="ascii")
        return min(int(part.partition("-")[0]) for part in text.split(","))
    except (OSError, ValueError):
        return processor


def whole_cores() -> int:
    """How many physical cores this process may use."""
    return len(set(physical_cores(usable_cores())))
