"""The processors that this process may use: which are cores of their own, and how much of them."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

CPUS = Path("/sys/devices/system/cpu")
CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")


def usable_cores() -> tuple[int, ...]:
    """Processors that this process may use: one of each physical core first, then the others.

    Two threads of one core (hyper-threads) share its arithmetic, so they are not two cores. Whoever
    takes processors from the start gets whole cores as long as there are any.
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


def cpu_quota() -> float | None:
    """How many processors this process and its neighbours in a container may use at once.

    The smallest quota of the groups that it is in: cpu.max of version 2 (quota and period in µs),
    cpu.cfs_quota_us ÷ cpu.cfs_period_us of version 1 (Linux, admin-guide/cgroup-v2.rst,
    scheduler/sched-bwc.rst). None: there is no quota.
    """
    try:
        lines = OWN_CGROUPS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            found += [quota for place in _upwards("", path) if (quota := _max_of(place))]
        elif "cpu" in controllers.split(","):
            found += [quota for place in _upwards(controllers, path) if (quota := _cfs_of(place))]
    return min(found, default=None)


def _upwards(mount: str, path: str) -> Iterator[Path]:
    """The folder of a group and of all around it. In a container the topmost is often its own."""
    top = CGROUPS / mount
    place = top / path.lstrip("/")
    yield from (one for one in (place, *place.parents) if one.is_relative_to(top))


def _max_of(place: Path) -> float | None:
    return _ratio(_text(place / "cpu.max"))


def _cfs_of(place: Path) -> float | None:
    return _ratio(f"{_text(place / 'cpu.cfs_quota_us')} {_text(place / 'cpu.cfs_period_us')}")


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _ratio(text: str) -> float | None:
    """Quota ÷ period; None: `max`, −1, or nothing that we understand."""
    try:
        quota, period = map(int, text.split())
    except ValueError:
        return None
    return quota / period if quota > 0 and period > 0 else None
