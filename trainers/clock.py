"""The clock of one rank: what it writes down while `fit` runs."""

import time
from collections.abc import Callable
from typing import Any

from backends.base import Backend
from legacy_keras import tf


class Clock(tf.keras.callbacks.Callback):
    """Times every step and every epoch, the epoch between two barriers.

    With a GPU the end of a step is when its launch returned; the end of an epoch waits for all.

    Attributes:
        train_s: seconds from the barrier before the epoch's first step to that after its last.
        step_end_s: end of each step of the epoch, from the first of these barriers.
        first_step_done: `time.time()` after the first step of the run, or None.
    """

    def __init__(self, backend: Backend, on_step: Callable[[int], None]) -> None:
        super().__init__()
        self._supports_tf_logs = True  # tensors are not copied to the host after every step
        self._backend = backend
        self._on_step = on_step
        self._steps_done = 0
        self._began = 0.0
        self._ends: list[float] = []
        self.train_s = 0.0
        self.step_end_s: tuple[float, ...] = ()
        self.first_step_done: float | None = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Start together."""
        self._ends = []
        self._backend.barrier()
        self._began = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Note the time and tell the launcher's watchdog."""
        self._ends.append(time.perf_counter())
        self._steps_done += 1
        if self.first_step_done is None:
            if self._backend.step_ends() is not None:
                self._backend.barrier()  # a dispatched step is not a finished one
            self.first_step_done = time.time()
        self._on_step(self._steps_done)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Stop together, before validation and anything else begins."""
        # Launched is not finished on a GPU: copying what the last step wrote waits for it.
        self._backend.local_values(self.model.trainable_variables[-1])
        self._backend.barrier()
        self.train_s = time.perf_counter() - self._began
        dispatched = self._backend.step_ends()
        ends = self._ends if dispatched is None else dispatched
        self.step_end_s = tuple(max(0.0, end - self._began) for end in ends)
