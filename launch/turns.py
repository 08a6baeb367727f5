"""Runs that take turns: each is frozen while another one trains.

A run waits by itself at the end of a turn, all its processes after the same update. Then they are
stopped (SIGSTOP), on every host, so that what a stack does while it waits costs the others nothing:
Open MPI and Horovod poll, and TensorFlow prefetches.
"""

import contextlib
import math
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from launch.remote import sweep
from launch.watch import SERVING, WAITING, Progress, read_progress
from ringside_core.specs import write_whole

if TYPE_CHECKING:
    from launch.plan import Plan
    from launch.remote.keepers import Keepers

TURN = "turn"
POLL_S = 0.002


def takes_turns(run_dir: Path) -> bool:
    """Whether the run of this folder takes turns."""
    return (run_dir / TURN).exists()


def allowed_until(run_dir: Path) -> float:
    """The updates after which the run waits; infinity: it goes on to its end."""
    return float((run_dir / TURN).read_text(encoding="ascii"))


@dataclass
class Turns:
    """The turns of one run, which `execute` runs in a thread of its own.

    Attributes:
        plan: of the run.
        resting: it is not its turn: no progress is expected of it.
        over: its execution has ended.
    """

    plan: "Plan"
    resting: bool = False
    over: bool = False
    keepers: "Keepers | None" = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self._run_dir = Path(self.plan.run_dir)
        self._run_dir.mkdir(parents=True, exist_ok=True)

    def allow(self, until: float) -> None:
        """Say after how many updates it waits next; infinity: it goes on to its end."""
        write_whole(self._run_dir / TURN, str(until))

    def progress(self) -> list[Progress]:
        """Where its tasks are now."""
        found = []
        for task in self.plan.expects:
            with contextlib.suppress(OSError, UnicodeDecodeError):
                text = (self._run_dir / "progress" / task).read_text()
                found.append(read_progress(task, text) or Progress(task=task))
        return found

    def waits(self, after: int) -> bool:
        """Whether each of its tasks waits after at least so many updates; servers only serve."""
        tasks = self.progress()
        training = [one for one in tasks if one.phase != SERVING]
        return (
            len(tasks) == len(self.plan.expects)
            and bool(training)
            and all(one.phase == WAITING and one.step >= after for one in training)
        )

    def run_until(self, until: float, between: Callable[[], None]) -> int:
        """Give it a turn: thaw it, wait until it waits itself or is over, and freeze it.

        Args:
            until: updates after which it waits; infinity: until it is over.
            between: called repeatedly meanwhile; it may raise.

        Returns:
            The updates that it has made; 0: it is over.
        """
        self.allow(until)
        self.thaw()
        while not self.over:
            if until < math.inf and self.waits(math.ceil(until)):
                break
            between()
            time.sleep(POLL_S)
        if self.over:
            return 0
        self.freeze()
        return max(one.step for one in self.progress())

    def freeze(self) -> None:
        """Stop all its processes, on every host."""
        self.resting = True
        self._signal(signal.SIGSTOP, sweep.FREEZE)

    def thaw(self) -> None:
        """Let all its processes go on."""
        self._signal(signal.SIGCONT, sweep.THAW)
        self.resting = False

    def _signal(self, number: signal.Signals, told: bytes) -> None:
        if self.keepers is not None:
            self.keepers.tell(told)
        sweep.signal_members(self.plan.run_id, number)

    def cpu_s(self) -> float:
        """User and system time of its living processes on this machine, and of their children."""
        total = 0
        for pid in sweep.members(self.plan.run_id):
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                total += sum(int(one) for one in fields[11:15])
        return total / os.sysconf("SC_CLK_TCK")

    def memory_bytes(self) -> int:
        """Memory of its processes on this machine; a shared page counts in part (PSS)."""
        total = 0
        for pid in sweep.members(self.plan.run_id):
            with contextlib.suppress(OSError):
                lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
                total += sum(int(one.split()[1]) for one in lines if one.startswith("Pss:"))
        return 1024 * total
