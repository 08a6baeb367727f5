"""Measure what else the hosts did during a run: ask their kernels over ssh, before and after."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

from launch import Site
from launch.remote import ssh
from ringside_core.readings.load import counted_between, own_cpu_s
from ringside_core.readings.machine import boot_id
from ringside_core.specs import Execution, Load, MachineCounts, RunRecord

# A host name, the boot that tells one kernel from another, and its counters.
ASK = ("sh", "-c", "uname -n && cat /proc/sys/kernel/random/boot_id /proc/vmstat /proc/stat")
LIMIT_S = 30.0
SWAPS = ("pswpin", "pswpout")
# CPU time of what starts a run on a host: sshd, the check of the host and its keeper
# (launch/remote), orted or horovodrun's services. Seen on a quiet lab, beyond what the records say:
# 1 s with horovodrun and mpirun, 2 to 2.5 s with a serial run.
STARTING_S = 2.5
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Look:
    """The answer of one host.

    Attributes:
        hostname: its own name, as in records.
        boot: id of its kernel's start; hosts on one machine, such as those of a lab, have the same.
        text: contents of /proc/vmstat and /proc/stat.
    """

    hostname: str
    boot: str
    text: str

    def swapped_bytes(self) -> int:
        """Bytes read from and written to swap since the machine started."""
        pairs = (line.split() for line in self.text.splitlines())
        return PAGE_BYTES * sum(int(value[0]) for name, *value in pairs if name in SWAPS)


@dataclass(frozen=True)
class Launcher:
    """The process that started the run.

    Attributes:
        boot: id of its kernel's start.
        hostname: of its machine, as in records.
        cpu_s: CPU time of it and of the children that it waited for.
    """

    boot: str
    hostname: str
    cpu_s: float


class HostsWatch:
    """Watches the processors that a run is pinned to, on all of its hosts.

    CPU time of others = busy time − CPU time of the run's own processes (from their records; on
    this machine, from this process and its children) − STARTING_S for each host. What a process
    does in that time is not counted, and a short run on a quiet host must not be called disturbed;
    so others are underestimated by at most that much. Hosts with one kernel share /proc/stat and
    are treated as one machine. If this machine is a host of the run, the processes on it are
    children of this one, and their time is counted once.

    Args:
        names: of the hosts.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._own_s = own_cpu_s()
        self._began = time.monotonic()
        self._before = looks(names)

    def load(self, execution: Execution) -> Load | None:
        """What was seen since; None: the run has no records, or a host did not answer."""
        if not execution.outcome.completed or self._before is None:
            return None
        after = looks(self._names)
        if after is None:
            return None
        return load_between(
            self._before,
            after,
            execution.records,
            wall_s=time.monotonic() - self._began,
            launcher=Launcher(boot_id(), os.uname().nodename, own_cpu_s() - self._own_s),
        )


def load_between(
    before: Mapping[str, Look],
    after: Mapping[str, Look],
    records: tuple[RunRecord, ...],
    *,
    wall_s: float,
    launcher: Launcher,
) -> Load | None:
    """CPU time of others between two answers of the hosts; None: it is not known."""
    kernels: dict[str, list[str]] = {}
    for name, look in before.items():
        if after[name].boot != look.boot:
            return None  # it was restarted meanwhile
        kernels.setdefault(look.boot, []).append(name)
    machines: list[MachineCounts] = []
    swapped = 0
    for boot, names in kernels.items():
        there = {before[name].hostname for name in names}
        own = [record for record in records if record.machine.host in there]
        if not own:
            continue
        own_s = sum(record.cpu_s for record in own)
        if launcher.boot == boot:  # processes on its own machine are in its time as children
            children_s = sum(one.cpu_s for one in own if one.machine.host == launcher.hostname)
            own_s += max(launcher.cpu_s - children_s, 0.0)
        first, last = before[names[0]], after[names[0]]
        counts = counted_between(
            first.text,
            last.text,
            {core for record in own for core in record.cores},
            own_s=own_s + STARTING_S * len({record.machine.host for record in own}),
        )
        bytes_moved = last.swapped_bytes() - first.swapped_bytes()
        if counts is None or bytes_moved < 0:
            return None
        machines.append(counts)
        swapped += bytes_moved
    if not machines or wall_s <= 0:
        return None
    return Load.counted(machines, wall_s=wall_s, swapped_bytes=swapped)


def looks(names: tuple[str, ...]) -> dict[str, Look] | None:
    """Ask all hosts at once; None: one of them did not answer."""
    answers = ssh.ask_all(dict.fromkeys(names, ASK), limit_s=LIMIT_S, here=Site.here().names)
    found = {
        name: Look(*answer.split("\n", 2))
        for name, answer in answers.items()
        if isinstance(answer, str)
    }
    return found if len(found) == len(answers) else None
