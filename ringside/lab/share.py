"""Each host's share of the cores, so that no host is faster while others idle."""

import contextlib
import errno
import math
import os
from collections.abc import Sequence
from pathlib import Path

from ringside.lab.names import LabHost, lab_of_numbered
from ringside_core.specs import RefusalError

CGROUPS = Path("/sys/fs/cgroup")
# The shortest period in which a busy process got its whole share. In a shorter one the kernel's
# ticks (4 ms) and slices (5 ms) take part of it. In a longer one a host pauses for longer than a
# step of training, and the time of a step depends on where the pause falls.
PERIOD_US = 10_000
# The least that the kernel accepts in a period (cpu.cfs_quota_us, cpu.max). Small shares therefore
# have longer periods.
LEAST_QUOTA_US = 1_000


def default_cores(hosts: int) -> float:
    """One core, or the part of a core that each host gets if hosts must share cores."""
    return 1 / math.ceil(hosts / len(os.sched_getaffinity(0)))


def overbooked(hosts: Sequence[LabHost]) -> bool:
    """Whether a core is promised more than once: then a host's speed depends on the others."""
    promised: dict[int, float] = {}
    for host in hosts:
        for core in host.affinity:
            promised[core] = promised.get(core, 0.0) + host.cores / len(host.affinity)
    return max(promised.values()) > 1 + 1e-9  # thirds do not add up to 1


def cores_of(index: int, cores: float, usable: Sequence[int]) -> tuple[int, ...]:
    """The cores of host `index` (from 1). They are neighbours; hosts take them in turn.

    Raises:
        RefusalError: more cores than there are.
    """
    if not cores <= len(usable):  # in this form it also refuses NaN
        raise RefusalError(
            "A host cannot have more cores than the machine.",
            received=f"--cores {cores:g}, {len(usable)} usable",
            advice=f"Use --cores {len(usable)} or fewer.",
        )
    width = math.ceil(cores)
    first = (index - 1) * width
    return tuple(sorted(usable[(first + one) % len(usable)] for one in range(width)))


def tree() -> Path | None:
    """Where the kernel takes limits of CPU time (cgroups version 1 or 2), or None."""
    if (CGROUPS / "cpu" / "cpu.cfs_quota_us").exists():
        return CGROUPS / "cpu"
    controllers = CGROUPS / "cgroup.subtree_control"
    if controllers.exists():
        try:
            controllers.write_text("+cpu")
        except OSError:  # not allowed: this is a container
            return None
        return CGROUPS
    return None


def limit(host: LabHost) -> Path | None:
    """Limit the host's CPU time; returns the file by which its first process joins the limit."""
    root = tree()
    if root is None:
        return None
    folder = root / host.namespace
    folder.mkdir()
    period = max(PERIOD_US, math.ceil(LEAST_QUOTA_US / host.cores))
    quota = round(host.cores * period)
    if (folder / "cpu.max").exists():
        (folder / "cpu.max").write_text(f"{quota} {period}")
    else:
        (folder / "cpu.cfs_period_us").write_text(str(period))
        (folder / "cpu.cfs_quota_us").write_text(str(quota))
    return folder / "cgroup.procs"


def groups(name: str) -> list[Path]:
    """The limits of this lab's hosts that exist."""
    roots = (CGROUPS / "cpu", CGROUPS)
    return [
        folder
        for root in roots
        if root.is_dir()
        for folder in root.iterdir()
        if lab_of_numbered(folder.name) == name
    ]


def members(folder: Path) -> set[int]:
    """Processes under a limit.

    The kernel shows a process of another PID namespace, beside or above this one, as 0. It has no
    number here, and a signal to 0 would go to our own process group.
    """
    with contextlib.suppress(FileNotFoundError):  # removed meanwhile
        listed = map(int, (folder / "cgroup.procs").read_text().split())
        return {pid for pid in listed if pid > 0}
    return set()


def has_foreign_members(folder: Path) -> bool:
    """Whether a process under this limit has no number here."""
    with contextlib.suppress(FileNotFoundError):  # removed meanwhile
        return "0" in (folder / "cgroup.procs").read_text().split()
    return False


def remove(name: str) -> bool:
    """Remove the limits. Returns False if a process is still under one."""
    for folder in groups(name):
        try:
            folder.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            return False
    return True
