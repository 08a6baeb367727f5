"""The clock of one process of a training."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from backends.base import Backend
from ringside_core.keras import KERAS, tf
from ringside_core.readings.load import sent_between, sent_bytes


class Clock:
    """Times every step and every epoch, from a barrier to the end of this process's last step.

    The barrier after the last step is not timed. It would add nothing to the slowest process's own
    time, and under MultiWorkerMirrored it takes as long as a step of a small model.

    With an accelerator, a step ends when its launch returns; the end of an epoch waits for all of
    them. An execution may be several steps (`steps_per_execution`).

    Attributes:
        began: `time.perf_counter()` at the barrier before the epoch's first step.
        train_s: seconds from the barrier before the epoch's first step to the end of its last.
        before_s: seconds from the end of the epoch before, with its validation, to the start of the
            clock; of the first epoch of a run, from its beginning.
        stopped_at: `time.perf_counter()` when it stopped.
        step_end_s: end of each execution of the epoch, from the first of these barriers.
        steps: updates of the epoch.
        done: updates of this run so far.
        sent_bytes: see EpochRecord. It is read before the first barrier and after the second one,
            so that reading is not timed; both barriers are in it.
        paused_s: time of the run so far in which it waited for its turn. It is in no other time.
        paused_in_epoch_s: the same of this epoch.
        first_step_done: `time.time()` after the first execution of the run, or None.
        startup_cpu_s: CPU time of this process until then.
    """

    def __init__(self, backend: Backend, model: Any) -> None:
        """Begin with no time.

        Args:
            backend: started.
            model: that is trained.
        """
        self._backend, self._model = backend, model
        # Servers and workers of a coordinator train without a clock of their own.
        self._counts_bytes = backend.local_rank == 0 or backend.role == "coordinator"
        kinds = {device.device_type for device in tf.config.list_logical_devices()}
        self._accelerated = kinds != {"CPU"}
        self.began = 0.0
        self._sent: dict[str, int] = {}
        self._ends: list[float] = []
        self._pauses: list[tuple[float, float]] = []  # of this epoch: when it began, how long
        self._epoch_began = 0.0
        self._done_before_epoch = 0
        self.done = 0
        self.paused_s = 0.0
        self.before_s = 0.0
        self.stopped_at = 0.0
        self.train_s = 0.0
        self.step_end_s: tuple[float, ...] = ()
        self.steps = 0
        self.sent_bytes: dict[str, int] = {}
        self.first_step_done: float | None = None
        self.startup_cpu_s: float | None = None

    def begin_epoch(self) -> None:
        """Note when the epoch began; `start` follows when everybody has begun it."""
        self._epoch_began = time.perf_counter()
        self._done_before_epoch = self.done

    def start(self) -> None:
        """Start together with all others."""
        self._ends = []
        self._pauses = []
        if self._counts_bytes:
            self._sent = sent_bytes()
        self._backend.barrier()
        self.began = time.perf_counter()
        self.before_s = self.began - self._epoch_began

    def on_step(self, done: int) -> None:
        """Note the time after an execution; `done` updates have been made in this run."""
        self._ends.append(time.perf_counter())
        self.done = done
        if self.first_step_done is None:
            if self._backend.step_ends() is not None:
                self._backend.barrier()
            self.first_step_done, self.startup_cpu_s = time.time(), time.process_time()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Within this block the training waits: its time and its bytes are not the training's.

        The last step is over before the wait begins.
        """
        self._finish_steps()
        if self._counts_bytes:
            sent_before = sent_between(self._sent, sent_bytes())
        began = time.perf_counter()
        yield
        seconds = time.perf_counter() - began
        self._pauses.append((began, seconds))
        self.paused_s += seconds
        if self._counts_bytes:
            now = sent_bytes()
            self._sent = {name: now[name] - sent_before.get(name, 0) for name in now}

    @property
    def paused_in_epoch_s(self) -> float:
        """See above."""
        return sum(seconds for _, seconds in self._pauses)

    def stop(self) -> None:
        """Stop, before validation and anything else begins; then wait for the others."""
        self._finish_steps()
        self.stopped_at = time.perf_counter()
        self.train_s = self.stopped_at - self.began - self.paused_in_epoch_s
        self._backend.barrier()
        if self._counts_bytes:
            self.sent_bytes = sent_between(self._sent, sent_bytes())
        dispatched = self._backend.step_ends()
        ends = self._ends if dispatched is None else dispatched
        self.step_end_s = tuple(
            max(0.0, end - sum(s for began, s in self._pauses if began < end) - self.began)
            for end in ends
        )
        self.steps = self.done - self._done_before_epoch

    def _finish_steps(self) -> None:
        """Launched is not finished: copying what the last step wrote waits for it."""
        if self._backend.step_ends() is not None:
            self._backend.barrier()  # a dispatched step is not a finished one
        if self._accelerated:
            self._backend.local_values(KERAS.trainable_of(self._model)[-1])
