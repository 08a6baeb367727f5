"""What one process costs, when it started, and which processors it may use."""

import contextlib
import functools
import os
import resource
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from ringside_core.specs import RefusalError


def peak_memory_bytes() -> int:
    """Highest resident set size of this process since its program was loaded.

    It is VmHWM if possible, not getrusage's ru_maxrss: on Linux ru_maxrss survives an exec, so a
    child of a parent with 300 MB starts at 300 MB.
    """
    highest = _status_bytes().get("VmHWM")
    if highest is None:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return highest


def shared_memory_bytes() -> int | None:
    """Resident pages that other processes may hold too; None: the kernel does not tell.

    Those of files, which are mostly the code of libraries, and of shared memory. The kernel's own
    count, Pss in smaps_rollup, is not asked: it divides a page by all processes that hold it, those
    of other runs too, and keeps no peak.
    """
    found = _status_bytes()
    if not {"RssFile", "RssShmem"} <= found.keys():
        return None
    return found["RssFile"] + found["RssShmem"]


def _status_bytes() -> dict[str, int]:
    """The sizes of /proc/self/status by name; empty where there is no such file."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return {}
    return {
        line.partition(":")[0]: int(line.split()[1]) * 1024
        for line in lines
        if line.endswith(" kB")
    }


@functools.cache  # the same answer for the life of the process, even if NTP changes the clock
def process_start_unix_s() -> float:
    """When this process was started, on the clock of `time.time()`, to about 10 ms.

    It is computed from its start in ticks since boot. psutil's create_time adds these to the second
    in which the machine booted, without its fraction, and is therefore up to 1 s too early.
    """
    started_after_boot_s = start_ticks("self") / os.sysconf("SC_CLK_TCK")
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - started_after_boot_s
    return time.time() - max(0.0, age_s)


def start_ticks(pid: int | str) -> int:
    """When a process was started, in the kernel's ticks since boot.

    Together with the id it names one process for as long as the machine is up. A time of day does
    not: a step of the clock (NTP, a resumed virtual machine) moves the start of every process.

    Raises:
        OSError: there is no such process, or it has ended and its parent has not waited for it.
    """
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    if fields[0] in "ZX":
        raise ProcessLookupError(f"process {pid} has ended")
    return int(fields[19])  # field 22 in proc(5); its second, a name, may hold anything


def pin(cores: Collection[int]) -> None:
    """Let this process, every thread of it and what it starts run on these processors only.

    Raises:
        RefusalError: one of them does not exist or is not allowed here.
    """
    wanted = set(cores)
    for thread in os.listdir("/proc/self/task"):
        # ESRCH: the thread has ended meanwhile. EINVAL: none of the processors may be used; that
        # is refused below.
        with contextlib.suppress(OSError):
            os.sched_setaffinity(int(thread), wanted)
    allowed = os.sched_getaffinity(0)
    if allowed != wanted:
        raise RefusalError(
            "A process can be pinned only to processors that it may use.",
            received=f"{sorted(wanted)}, of which {sorted(allowed & wanted)} may be used",
            advice="Ask for fewer cores for each replica, or leave the pinning away.",
        )


def cores_for(
    local_rank: int, replicas_per_process: int, cores_per_replica: int, available: Sequence[int]
) -> tuple[int, ...]:
    """The processors of one process, which are those of its replicas, sorted.

    Replica i of a host (i = local_rank · replicas_per_process + j) gets
    available[(i · cores_per_replica + m) mod len(available)] for m < cores_per_replica. So replicas
    share processors only if there are too few.
    """
    first = local_rank * replicas_per_process * cores_per_replica
    count = replicas_per_process * cores_per_replica
    return tuple(sorted({available[(first + m) % len(available)] for m in range(count)}))
