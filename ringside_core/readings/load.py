"""What a machine did during a run, its processors and interfaces: from /proc, before and after."""

import os
import resource
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

from ringside_core.readings.process import cores_for
from ringside_core.specs import Load, MachineCounts, RunSpec

PROC_STAT = Path("/proc/stat")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Columns of /proc/stat (man proc_stat). The kernel already counts guests in user and nice.
BUSY = (0, 1, 2, 5, 6)  # user, nice, system, irq, softirq
STEAL = 7


@dataclass(frozen=True)
class Ticks:
    """CPU time of some processors since the machine started, in seconds, and how many they are."""

    busy_s: float
    steal_s: float
    cores: int


def read_ticks(text: str, cores: Collection[int] | None = None) -> Ticks:
    """Add up the lines of these processors in the text of /proc/stat; None: of all."""
    busy = steal = count = 0
    for line in text.splitlines():
        name, *values = line.split()
        number = name.removeprefix("cpu")
        if not name.startswith("cpu") or not number.isdigit():
            continue
        if cores is None or int(number) in cores:
            count += 1
            busy += sum(int(values[field]) for field in BUSY)
            steal += int(values[STEAL]) if len(values) > STEAL else 0
    return Ticks(busy / TICKS_PER_S, steal / TICKS_PER_S, count)


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


def counted_between(
    before: str, after: str, cores: Collection[int], *, own_s: float
) -> MachineCounts | None:
    """What a machine counted between two texts of its /proc/stat.

    Args:
        before: the text at the beginning.
        after: the text at the end.
        cores: processors of the run.
        own_s: CPU time of the run's own processes meanwhile.

    Returns:
        None: a processor came or went, or a counter went back. Zero would call an unknown machine
        quiet.
    """
    first, last = read_ticks(before, cores), read_ticks(after, cores)
    all_first, all_last = read_ticks(before), read_ticks(after)
    if first.cores != len(cores) or last.cores != len(cores) or all_first.cores != all_last.cores:
        return None
    busy_s, steal_s = last.busy_s - first.busy_s, last.steal_s - first.steal_s
    all_busy_s = all_last.busy_s - all_first.busy_s
    all_steal_s = all_last.steal_s - all_first.steal_s
    if min(busy_s, steal_s, all_busy_s, all_steal_s) < 0:
        return None
    return MachineCounts(
        cores=tuple(sorted(cores)),
        busy_s=busy_s,
        steal_s=steal_s,
        own_s=own_s,
        machine_cores=all_last.cores,
        machine_busy_s=all_busy_s,
        machine_steal_s=all_steal_s,
    )


@dataclass(frozen=True)
class _Look:
    """One look: /proc/stat, CPU time that is our own, bytes swapped."""

    text: str
    own_s: float
    swapped_bytes: int


class LoadWatch:
    """Watches the processors of a run, and all of the machine, inside its `with` block.

    The processes of a run are descendants of this one, and every process waits for its children
    (horovodrun and mpirun too). So after the run their time is part of this process's time.

    The processors that the run is pinned to are counted by themselves: if a run uses 2 of 64, a
    stranger on one of the 2 would be lost among 64. The other 62 share memory, caches and the clock
    rate with them, so the whole machine is counted too. The kernel does not say where our own time
    was spent, so all of it counts as spent on the 2. Some of it was spent on other processors: by
    this process, by launchers (horovodrun, mpirun), and by processes before they were pinned. That
    much is missing from the others' time. So a stranger never looks too large, and looks too small
    by at most that. Launchers mostly wait. Of the whole machine the others' time is exact.

    Args:
        cores: those of the run, see `cores_of`; None: all that this process may use.
        own_s: CPU time that the run and this process have used so far.

    Attributes:
        load: the result, after the block; None without /proc/stat.
    """

    def __init__(
        self, cores: Collection[int] | None = None, own_s: Callable[[], float] = own_cpu_s
    ) -> None:
        self.load: Load | None = None
        self._own_s = own_s
        self._cores = os.sched_getaffinity(0) if cores is None else set(cores)

    def __enter__(self) -> Self:
        self._seen = self._look()
        self._began = time.monotonic()
        return self

    def __exit__(self, *error: object) -> None:
        wall_s = time.monotonic() - self._began
        before, after = self._seen, self._look()
        if before is None or after is None or wall_s <= 0:
            return
        # The time of a process is gone between its end and the moment at which it is waited for.
        own_s = max(0.0, after.own_s - before.own_s)
        counts = counted_between(before.text, after.text, self._cores, own_s=own_s)
        if counts is not None:
            swapped = max(0, after.swapped_bytes - before.swapped_bytes)
            self.load = Load.counted([counts], wall_s=wall_s, swapped_bytes=swapped)

    def _look(self) -> _Look | None:
        try:
            text = PROC_STAT.read_text(encoding="ascii")
        except OSError:
            return None
        swap = psutil.swap_memory()
        return _Look(text, self._own_s(), swap.sin + swap.sout)


def sent_bytes() -> dict[str, int]:
    """Bytes that each interface has sent since it came up, loopback too."""
    counters = psutil.net_io_counters(pernic=True, nowrap=False)
    return {name: counted.bytes_sent for name, counted in counters.items()}


def sent_between(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """What each interface sent between two readings.

    An interface that appeared, disappeared or restarted its count in between is left out: it is
    not known what that sent.
    """
    return {
        name: after[name] - sent
        for name, sent in before.items()
        if name in after and after[name] >= sent
    }
