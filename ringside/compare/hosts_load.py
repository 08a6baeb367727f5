"""What else the hosts of a run did: their kernels are asked over ssh, before and after."""

import os
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from launch import Site
from launch.remote import ssh
from ringside_core.readings.load import Ticks, others_cpu_s, own_cpu_s, read_ticks
from ringside_core.specs import Execution, Load, RunRecord

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
    """What one host said.

    Attributes:
        hostname: its own name, as in records.
        boot: the same for hosts that are one machine, as those of a lab are.
        text: of /proc/vmstat and /proc/stat.
    """

    hostname: str
    boot: str
    text: str

    def ticks(self, cores: Collection[int]) -> Ticks | None:
        """CPU time of these processors since the machine started; None: one of them is off."""
        there = {line.split()[0] for line in self.text.splitlines()}
        if not there.issuperset(f"cpu{core}" for core in cores):
            return None
        return read_ticks(self.text, set(cores))

    def swapped_bytes(self) -> int:
        """Read from and written to swap since the machine started."""
        pairs = (line.split() for line in self.text.splitlines())
        return PAGE_BYTES * sum(int(value[0]) for name, *value in pairs if name in SWAPS)


@dataclass(frozen=True)
class Launcher:
    """The process that started the run.

    Attributes:
        boot: of the kernel that it is on.
        hostname: of its machine, as in records.
        cpu_s: that it and its children used, which it waited for.
    """

    boot: str
    hostname: str
    cpu_s: float

    def with_records(self, records: Collection[RunRecord]) -> float:
        """CPU time of itself and of the processes that left records on its kernel.

        Those on its own machine are its children, so that their time is in its own already; those
        on other hosts of this kernel (of a lab) were started by sshd.
        """
        children = sum(one.cpu_s for one in records if one.machine.host == self.hostname)
        others = sum(one.cpu_s for one in records if one.machine.host != self.hostname)
        return max(self.cpu_s, children) + others


class HostsWatch:
    """Watches the processors that a run is pinned to, on all of its hosts.

    Others' time is busy time − the CPU time of the run's own processes, as they wrote it into their
    records, on this machine what this process and its children used, and STARTING_S for each host:
    nobody counts that, and short runs on a quiet host must not be called disturbed. So a stranger
    is seen too small by at most that. Hosts with one kernel have one /proc/stat, so they are looked
    at as one machine. Where this machine is a host of the run, the processes on it are children of
    this one: their time is not counted twice.

    Args:
        names: of the hosts.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._own_s = own_cpu_s()
        self._began = time.monotonic()
        self._before = looks(names)

    def load(self, execution: Execution) -> Load | None:
        """What was seen since; None: a run left no account of itself, or a host none."""
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
            launcher=Launcher(_own_boot(), os.uname().nodename, own_cpu_s() - self._own_s),
        )


def load_between(
    before: Mapping[str, Look],
    after: Mapping[str, Look],
    records: tuple[RunRecord, ...],
    *,
    wall_s: float,
    launcher: Launcher,
) -> Load | None:
    """Others' time between two looks at the hosts; None: it is not known.

    Args:
        before: at the beginning, by name of the host.
        after: at the end.
        records: of the processes of the run.
        wall_s: between the looks.
        launcher: what started the run.
    """
    kernels: dict[str, list[str]] = {}
    for name, look in before.items():
        if after[name].boot != look.boot:
            return None  # it was started anew meanwhile
        kernels.setdefault(look.boot, []).append(name)
    cores = others = steal = swapped = 0.0
    for boot, names in kernels.items():
        there = {before[name].hostname for name in names}
        own = [record for record in records if record.machine.host in there]
        if not own:
            continue
        watched = {core for record in own for core in record.cores}
        spent = _spent(before[names[0]], after[names[0]], watched)
        if spent is None:
            return None
        ticks, swapped_bytes = spent
        if launcher.boot == boot:
            own_s = launcher.with_records(own)
        else:
            own_s = sum(record.cpu_s for record in own)
        own_s += STARTING_S * len({record.machine.host for record in own})
        cores += len(watched)
        others += others_cpu_s(busy_s=ticks.busy_s, own_s=own_s)
        steal += ticks.steal_s
        swapped += swapped_bytes
    if not cores or wall_s <= 0:
        return None
    return Load(
        wall_s=wall_s,
        cores=int(cores),
        others_cpu_s=others,
        steal_cpu_s=steal,
        swapped_bytes=int(swapped),
    )


def _spent(first: Look, last: Look, cores: Collection[int]) -> tuple[Ticks, int] | None:
    """CPU time of these processors between two looks, and bytes swapped meanwhile.

    None: a processor is off, or a counter has gone back. 0 would make an unknown host a quiet one.
    """
    began, ended = first.ticks(cores), last.ticks(cores)
    if began is None or ended is None:
        return None
    ticks = Ticks(ended.busy_s - began.busy_s, ended.steal_s - began.steal_s)
    swapped_bytes = last.swapped_bytes() - first.swapped_bytes()
    if min(ticks.busy_s, ticks.steal_s, swapped_bytes) < 0:
        return None
    return ticks, swapped_bytes


def looks(names: tuple[str, ...]) -> dict[str, Look] | None:
    """Ask all hosts at once; None: one of them does not answer."""
    answers = ssh.ask_all(dict.fromkeys(names, ASK), limit_s=LIMIT_S, here=Site.here().names)
    found = {
        name: Look(*answer.split("\n", 2))
        for name, answer in answers.items()
        if isinstance(answer, str)
    }
    return found if len(found) == len(answers) else None


def _own_boot() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
