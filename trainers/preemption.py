"""A training that is asked to end early: all processes save at the same update, and end there."""

import contextlib
import math
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from types import FrameType

import numpy as np

from ringside_core.specs import EpochRecord, PreemptedError
from trainers.artifacts import Checkpoint
from trainers.driver import Listener

# As kill, Kubernetes and a preempting Slurm send it, and as a Slurm script asks for it.
SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
AGREE_S = 1.0


class Preemption(Listener):
    """Ends the training, with a checkpoint, when any of its processes gets one of SIGNALS.

    Where processes must agree, they do about once a second, whatever an update takes: that costs
    one all-reduce of two numbers. The reduced values also say at which update they ask again, so
    that all ask at the same one.

    Args:
        saving: writes the checkpoint; called before this listener.
    """

    def __init__(self, saving: Checkpoint) -> None:
        self._saving = saving
        self._noted: signal.Signals | None = None

    @staticmethod
    @contextlib.contextmanager
    def heard(listeners: Sequence["Preemption"]) -> Iterator[None]:
        """Let these listeners, at most a single one, hear the signals within this block."""
        with contextlib.ExitStack() as stack:
            for listener in listeners:
                stack.enter_context(listener.hearing())
            yield

    @contextlib.contextmanager
    def hearing(self) -> Iterator[None]:
        """Note the signals within this block. Only the main thread can have handlers."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._note) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                # None: it was not set from Python, as TensorFlow's.
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def on_start(self) -> None:
        """No process has made an update."""
        backend = self.training.backend
        # A coordinator decides alone.
        self._alone = backend.size == 1 or not backend.capabilities.synchronous
        self._asked_at, self._asked_after, self._next, self._stride = -math.inf, 0, 1, 1

    def on_step(self, done: int) -> None:
        """Ask all, if it is time; save and end if any process is to end."""
        if (self._noted is None) if self._alone else (done < self._next):
            return
        # The end of an epoch asks by itself, and saves.
        if not self._saving.can_save_after(done) or not self._all_agree(done):
            return
        self._saving.save_after(done)
        self._end(f"after update {done} of this run")

    def on_epoch_end(self, epoch: int, record: EpochRecord) -> None:
        """Ask all; the epoch has been saved. A training that is over has nothing left to end."""
        if epoch + 1 < self.training.spec.epochs and self._all_agree(self.clock.done):
            self._end(f"after epoch {epoch + 1}")

    def _all_agree(self, done: int) -> bool:
        now = time.monotonic()
        # 0 at first: the time of the first update is that of building.
        a_second = (done - self._asked_after) / max(now - self._asked_at, 1e-9) * AGREE_S
        # Growing slowly: a few updates say little of the others.
        wanted = np.array([self._noted is not None, min(max(1.0, a_second), 2.0 * self._stride)])
        ends, stride = self.training.backend.all_reduce(wanted, "max")
        self._stride = int(stride)
        self._asked_at, self._asked_after, self._next = now, done, done + self._stride
        return bool(ends)

    def _end(self, where: str) -> None:
        self.training.backend.barrier()  # no process leaves while the chief writes
        by = "another process" if self._noted is None else self._noted.name
        raise PreemptedError(f"ended by {by} {where}; {self._saving.said}")

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted = signal.Signals(number)
