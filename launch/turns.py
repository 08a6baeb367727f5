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
# The training of this folder begins again where it would end: END ends it.
WITHOUT_END = "without-end"
END = -1.0
MOST_EPOCHS = 1_000_000  # that it would make
POLL_S = 0.01  # no pause is timed, and to look costs the training a part of a processor
QUIET_S = 0.2  # within which a signal is heard
RETRIES = 20


def takes_turns(run_dir: Path) -> bool:
    """Whether the run of this folder takes turns."""
    return (run_dir / TURN).exists()


def never_ends(run_dir: Path) -> bool:
    """Whether the training of this folder goes on until it is ended."""
    return (run_dir / WITHOUT_END).exists()


def allowed_until(run_dir: Path) -> float:
    """The updates after which the run waits; infinity: it goes on to its end; END: it ends now."""
    for _ in range(RETRIES):
        with contextlib.suppress(OSError, ValueError):  # a network disk may lose it for a moment
            return float((run_dir / TURN).read_text(encoding="ascii"))
        time.sleep(0.1)
    return float((run_dir / TURN).read_text(encoding="ascii"))


@dataclass
class Turns:
    """The turns of one run, which `execute` runs in a thread of its own.

    Attributes:
        plan: of the run.
        without_end: its training goes on past what its author asks for, until END.
        resting: it is not its turn: no progress is expected of it.
        over: its execution has ended.
    """

    plan: "Plan"
    without_end: bool = False
    resting: bool = False
    over: bool = False
    keepers: "Keepers | None" = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self._run_dir = Path(self.plan.run_dir)
        self._run_dir.mkdir(parents=True, exist_ok=True)
        if self.without_end:
            (self._run_dir / WITHOUT_END).touch()

    def allow(self, until: float) -> None:
        """Say after how many updates it waits next; infinity: it goes on to its end; or END."""
        write_whole(self._run_dir / TURN, str(until))

    def progress(self) -> list[Progress]:
        """Where its tasks are now."""
        return [self._progress(task) for task in self.plan.expects]

    def _progress(self, task: str) -> Progress:
        found = None
        with contextlib.suppress(OSError, UnicodeDecodeError):
            found = read_progress(task, (self._run_dir / "progress" / task).read_text())
        return found or Progress(task=task)

    def waits(self, after: int) -> bool:
        """Whether each of its tasks waits after at least so many updates; servers only serve.

        It stops at the first that does not: this is asked often, beside the training.
        """
        phases = set()
        for at in map(self._progress, self.plan.expects):
            if at.phase != SERVING and not (at.phase == WAITING and at.step >= after):
                return False
            phases.add(at.phase)
        return WAITING in phases

    def run_until(
        self, until: float, between: Callable[[], None], *, expected_s: float = 0.0
    ) -> int:
        """Give it a turn: thaw it, wait until it waits itself or is over, and freeze it.

        Args:
            until: updates after which it waits; infinity: until it is over.
            between: called repeatedly meanwhile; it may raise.
            expected_s: about how long it takes. There is no look before: where every processor has
                a replica, each one costs the training.

        Returns:
            The updates that it has made; 0: it is over.
        """
        self.allow(until)
        self.thaw()
        quiet_until = time.monotonic() + expected_s
        while not self.over:
            left = quiet_until - time.monotonic()
            if left > 0:
                time.sleep(min(left, QUIET_S))
            elif END < until < math.inf and self.waits(math.ceil(until)):
                break
            else:
                time.sleep(POLL_S)
            between()
        if self.over:
            return 0
        self.freeze()
        return max(task.step for task in self.progress())

    def freeze(self) -> None:
        """Stop all its processes, on every host."""
        self.resting = True
        self._signal(signal.SIGSTOP, sweep.FREEZE)

    def thaw(self) -> None:
        """Let all its processes go on."""
        self._signal(signal.SIGCONT, sweep.THAW)
        self.resting = False

    def _signal(self, number: signal.Signals, byte: bytes) -> None:
        if self.keepers is not None:
            self.keepers.tell(byte)
        sweep.signal_members(self.plan.run_id, number)

    def cpu_s(self) -> float:
        """User and system time of its living processes on this machine, and of their children."""
        total = 0
        for pid in sweep.members(self.plan.run_id):
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                total += sum(map(int, fields[11:15]))
        return total / os.sysconf("SC_CLK_TCK")

    def memory_bytes(self) -> int:
        """Memory that its processes on this machine have for themselves, not that of libraries."""
        total = 0
        for pid in sweep.members(self.plan.run_id):
            with contextlib.suppress(OSError):
                lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
                total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:"))
        return 1024 * total
