"""What else a machine did during a run: from /proc/stat, before and after."""

import os
import resource
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from ringside_core.readings.process import cores_for
from ringside_core.specs import Load, RunSpec

PROC_STAT = Path("/proc/stat")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Columns of /proc/stat (man proc_stat). The kernel already counts guests in user and nice.
BUSY = (0, 1, 2, 5, 6)  # user, nice, system, irq, softirq
STEAL = 7


@dataclass(frozen=True)
class Ticks:
    """CPU time of some processors since the machine started, in seconds."""

    busy_s: float
    steal_s: float


def read_ticks(text: str, cores: set[int]) -> Ticks:
    """Add up the lines of these processors in the text of /proc/stat."""
    busy = steal = 0
    for line in text.splitlines():
        name, *values = line.split()
        number = name.removeprefix("cpu")
        if name.startswith("cpu") and number.isdigit() and int(number) in cores:
            busy += sum(int(values[field]) for field in BUSY)
            steal += int(values[STEAL]) if len(values) > STEAL else 0
    return Ticks(busy / TICKS_PER_S, steal / TICKS_PER_S)


def read_machine_ticks() -> Ticks | None:
    """CPU time of all processors that this process may use; None without /proc/stat."""
    try:
        text = PROC_STAT.read_text(encoding="ascii")
    except OSError:
        return None
    return read_ticks(text, os.sched_getaffinity(0))


def cores_of(spec: RunSpec, available: Sequence[int]) -> tuple[int, ...]:
    """The processors of this machine that the processes of a run are pinned to; all without a pin.

    Args:
        spec: of the run.
        available: those that this process, and what it starts, may use.
    """
    each, topology = spec.resources.cores_per_replica, spec.topology
    if each is None:
        return tuple(available)
    # A coordinator and its servers share the processors of all replicas, on any host.
    coordinated = spec.capabilities.process_model == "coordinator"
    on_host = topology.processes_per_host * topology.replicas_per_process
    return cores_for(0, topology.num_replicas if coordinated else on_host, each, available)


def own_cpu_s() -> float:
    """User and system time of this process and of all its descendants that were waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def others_cpu_s(*, busy_s: float, own_s: float) -> float:
    """CPU time of the processes that are not our own.

    Busy time of the processors − user and system time of this process and of all its descendants
    that were waited for. Ticks are coarse, so the difference may be a little below 0; 0 is
    returned then.
    """
    return max(0.0, busy_s - own_s)


class LoadWatch:
    """Watches the processors of a run, inside its `with` block.

    The processes of a run are descendants of this one, and every process waits for its children
    (horovodrun and mpirun too). So after the run their time is part of this process's time.

    Only the processors that the run is pinned to are watched. If a run uses 2 of 64, a stranger on
    one of the 2 would be lost among 64, and a stranger elsewhere does not disturb the run. The
    kernel does not say where our own time was spent, so all of it counts as spent there. Some of it
    was spent on other processors: by this process, by launchers (horovodrun, mpirun), and by
    processes before they were pinned. That much is missing from the others' time. So a stranger
    never looks too large, and looks too small by at most that. Launchers mostly wait.

    Args:
        cores: those of the run, see `cores_of`; None: all that this process may use.

    Attributes:
        load: the result, after the block; None without /proc/stat.
    """

    def __init__(self, cores: Collection[int] | None = None) -> None:
        self.load: Load | None = None
        self._cores = os.sched_getaffinity(0) if cores is None else set(cores)

    def __enter__(self) -> Self:
        self._ticks, self._own_s, self._swapped = self._look()
        self._began = time.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        wall_s = time.monotonic() - self._began
        ticks, own_s, swapped = self._look()
        if ticks is None or self._ticks is None or wall_s <= 0:
            return
        self.load = Load(
            wall_s=wall_s,
            cores=len(self._cores),
            others_cpu_s=others_cpu_s(
                busy_s=ticks.busy_s - self._ticks.busy_s, own_s=own_s - self._own_s
            ),
            steal_cpu_s=max(0.0, ticks.steal_s - self._ticks.steal_s),
            swapped_bytes=max(0, swapped - self._swapped),
        )

    def _look(self) -> tuple[Ticks | None, float, int]:
        try:
            text = PROC_STAT.read_text(encoding="ascii")
        except OSError:
            return None, 0.0, 0
        swap = psutil.swap_memory()
        return read_ticks(text, self._cores), own_cpu_s(), swap.sin + swap.sout
