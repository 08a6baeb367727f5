"""The clock of one rank: what it writes down while `fit` runs."""

import copy
import statistics
import time
from collections.abc import Callable
from typing import Any

from backends.base import Backend
from ringside_core.keras import tf
from ringside_core.readings.traffic import sent_between, sent_bytes


class Clock(tf.keras.callbacks.Callback):
    """Times every step and every epoch, from a barrier to the end of this process's last step.

    It stands before all others, so that it stops first; `starter` stands behind them, so that what
    they do at the beginning of an epoch is not timed. The barrier after the last step is not timed
    either: it tells nothing that the slowest process's own time does not, and under
    MultiWorkerMirrored alone it takes as long as a step of a small model.

    With an accelerator the end of a step is when its launch returned; the end of an epoch waits for
    all.

    Keras calls it once for each execution, which may be several steps (`steps_per_execution`).

    Attributes:
        train_s: seconds from the barrier before the epoch's first step to the end of its last.
        before_s: seconds from the beginning of the epoch to the start of the clock.
        stopped_at: `time.perf_counter()` when it stopped.
        step_end_s: end of each execution of the epoch, from the first of these barriers.
        steps: updates of the epoch.
        sent_bytes: see EpochRecord. Read before the first barrier and after the second one, so that
            reading takes no time between them; both barriers are in it.
        first_step_done: `time.time()` after the first execution of the run, or None.
    """

    def __init__(
        self, backend: Backend, on_step: Callable[[int], None], *, first_step: int = 0
    ) -> None:
        """Begin with no time.

        Args:
            backend: started.
            on_step: called with the updates done in this run, after each execution.
            first_step: number of the first update within its epoch, of a resumed run.
        """
        super().__init__()
        self._supports_tf_logs = True  # tensors are not copied to the host after every step
        self._backend = backend
        self._on_step = on_step
        # Servers and workers of a coordinator train without a clock of their own.
        self._counts_bytes = backend.local_rank == 0 or backend.role == "coordinator"
        self._first_step = self._last_step = first_step
        self._done_before = -first_step  # updates of this run before the epoch's number 0
        kinds = {device.device_type for device in tf.config.list_logical_devices()}
        self._accelerated = kinds != {"CPU"}
        self._began = 0.0
        self._sent: dict[str, int] = {}
        self._ends: list[float] = []
        self._epoch_began = 0.0
        self.before_s = 0.0
        self.stopped_at = 0.0
        self.train_s = 0.0
        self.step_end_s: tuple[float, ...] = ()
        self.steps = 0
        self.sent_bytes: dict[str, int] = {}
        self.first_step_done: float | None = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Note when the epoch began; the clock starts when everybody has begun it."""
        self._epoch_began = time.perf_counter()

    def starter(self) -> Any:
        """The callback that starts this clock; it has to be the last one."""
        return _Starter(self.start)

    def start(self) -> None:
        """Start together with all others."""
        self._ends = []
        if self._counts_bytes:
            self._sent = sent_bytes()
        self._backend.barrier()
        self._began = time.perf_counter()
        self.before_s = self._began - self._epoch_began

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Note the time and tell the launcher's watchdog; `batch` is the last one executed."""
        self._ends.append(time.perf_counter())
        self._last_step = batch
        if self.first_step_done is None:
            if self._backend.step_ends() is not None:
                self._backend.barrier()  # a dispatched step is not a finished one
            self.first_step_done = time.time()
        self._on_step(self._done_before + batch + 1)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Stop, before validation and anything else begins; then wait for the others."""
        if (
            self._accelerated
        ):  # launched is not finished: copying what the last step wrote waits for it
            self._backend.local_values(self.model.trainable_variables[-1])
        self.stopped_at = time.perf_counter()
        self.train_s = self.stopped_at - self._began
        self._backend.barrier()
        if self._counts_bytes:
            self.sent_bytes = sent_between(self._sent, sent_bytes())
        dispatched = self._backend.step_ends()
        ends = self._ends if dispatched is None else dispatched
        self.step_end_s = tuple(max(0.0, end - self._began) for end in ends)
        self.steps = self._last_step + 1 - self._first_step
        self._done_before += self._last_step + 1
        self._first_step = 0


class _Starter(tf.keras.callbacks.Callback):
    """Starts a clock when every other callback has begun the epoch."""

    def __init__(self, start: Callable[[], None]) -> None:
        super().__init__()
        self._supports_tf_logs = True
        self._start = start

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Start."""
        self._start()


def seconds_per_execution(callbacks: list[Any]) -> float:
    """What Keras takes to call these callbacks of a training that is over: median of 20 means.

    Each mean is over 100 executions. Copies are called, whose lists are their own, as if the step
    before the next epoch ended: so a clock tells the launcher the number of steps once more.
    """
    copies = [copy.copy(callback) for callback in callbacks]
    for one in copies:
        own = {name: list(value) for name, value in vars(one).items() if type(value) is list}
        vars(one).update(own)
    called = tf.keras.callbacks.CallbackList(copies)
    means = []
    for _ in range(20):
        began = time.perf_counter()
        for _ in range(100):
            called.on_train_batch_begin(-1)
            called.on_train_batch_end(-1, {})
        means.append((time.perf_counter() - began) / 100)
    return statistics.median(means)
