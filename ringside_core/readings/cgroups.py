"""What the control groups of this process allow: processors at once, and memory.

Both versions of control groups (Linux, admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst,
scheduler/sched-bwc.rst). A container is such a group.
"""

from collections.abc import Collection, Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")
# Lines of memory.stat, by version.
FREED = {
    1: ("total_inactive_file", "total_active_file"),
    2: ("inactive_file", "active_file", "slab_reclaimable"),
}


def cpu_quota() -> float | None:
    """How many processors this process and its neighbours in a container may use at once.

    The smallest quota of the groups that it is in: cpu.max of version 2 (quota and period in µs),
    cpu.cfs_quota_us ÷ cpu.cfs_period_us of version 1. None: there is no quota.
    """
    found = []
    for version, place in _groups("cpu"):
        pair = _text(place / "cpu.max")
        if version == 1:
            pair = f"{_text(place / 'cpu.cfs_quota_us')} {_text(place / 'cpu.cfs_period_us')}"
        if (quota := _ratio(pair)) is not None:
            found.append(quota)
    return min(found, default=None)


def memory_left_bytes() -> int | None:
    """Memory that this process and its neighbours in a container may still take.

    The least of the groups that it is in: limit − use + what the kernel takes back before it
    refuses (pages of files and, in version 2, caches of its own). None: there is no limit.
    """
    found = []
    for version, place in _groups("memory"):
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
        if version == 2:
            names = ("memory.max", "memory.current")
        limit, used = (_text(place / name) for name in names)
        if limit.isdigit() and used.isdigit():
            freed = _statistics(place, FREED[version])
            found.append(max(0, int(limit) - int(used)) + freed)
    return min(found, default=None)


def _groups(controller: str) -> Iterator[tuple[int, Path]]:
    """Version and folder of the groups of this process and of all around them."""
    # In a container the topmost folder is often its own.
    try:
        lines = OWN_CGROUPS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            version, top = 2, CGROUPS
        elif controller in controllers.split(","):
            version, top = 1, CGROUPS / controllers
        else:
            continue
        place = top / path.lstrip("/")
        yield from ((version, one) for one in (place, *place.parents) if one.is_relative_to(top))


def _statistics(place: Path, names: Collection[str]) -> int:
    """The sum of these lines of memory.stat; one that is not there is 0."""
    lines = [line.split() for line in _text(place / "memory.stat").splitlines()]
    return sum(int(line[1]) for line in lines if len(line) == 2 and line[0] in names)


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
