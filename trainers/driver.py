"""One training: timed, recorded, and followed by its listeners."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from backends.base import Backend
from ringside_core.specs import EpochRecord, RecordInProgress, RefusalError, RunSpec
from trainers.checkpoint import weights_digest
from trainers.clock import Clock
from trainers.reading import Reading
from trainers.totals import BegunEpoch, Totals


class DivergedError(FloatingPointError):
    """A loss or a metric is no longer a number."""


@dataclass
class Training:
    """A training before its first step: what its listeners may look at.

    Attributes:
        totals: what an epoch adds up.
        epochs_left: epochs of this run, a begun one among them.
        workers: updates of a global batch: each asynchronous worker makes its own.
        first_epoch: number of the first epoch of this run, as Keras counts them, from 0.
        begun: what was done of that epoch before a restart; None: nothing.
        updates_before: updates of that epoch before the restart.
        steps_per_execution: updates in one call of the training function.
        feed: what must not change when a run goes on, as JSON.
    """

    spec: RunSpec
    backend: Backend
    model: Any
    totals: Totals
    epochs_left: int
    workers: int
    first_epoch: int
    begun: BegunEpoch | None
    updates_before: int
    steps_per_execution: int
    feed: str
    data: Reading

    @property
    def steps_per_epoch(self) -> int | None:
        """Updates; None: not known before the first epoch has ended."""
        return self.data.of_epoch * self.workers or None

    @property
    def updates(self) -> int | None:
        """Updates of this run; None: not known yet."""
        each = self.steps_per_epoch
        return None if each is None else each * self.epochs_left - self.updates_before


class Listener:
    """Hears how a training goes. A subclass overrides the methods that it needs.

    Attributes:
        training, clock: set before `on_start`.
        tell_phase: likewise; it tells all listeners what is done now.
    """

    training: Training
    clock: Clock
    tell_phase: Callable[[str], None]

    def on_phase(self, name: str) -> None:
        """What is done now: compiling, training, evaluating or saving.

        It is called again after each step that can be heard of in no other way.
        """

    def on_start(self) -> None:
        """All replicas hold the initial weights; no step has been made. Not timed."""

    def on_epoch_begin(self, epoch: int) -> None:
        """An epoch begins, counted from 0; its clock does not run yet."""

    def on_step(self, done: int) -> None:
        """An execution of one or several updates is over: `done` updates in this run. Timed."""

    def on_epoch_end(self, epoch: int, record: EpochRecord) -> None:
        """An epoch and its validation are over; the clock has stopped."""

    def on_trained(self) -> None:
        """The last epoch is over. This is the last time at which weights may change."""

    def on_end(self) -> None:
        """The training is over."""


class Progress(Listener):
    """Passes on how far the training is.

    Args:
        on_step: called with (updates done, updates in all) after each execution.
        on_epoch: called with (epoch, its record).
        on_phase: called with what is done now, see `Listener.on_phase`.
    """

    def __init__(
        self,
        on_step: Callable[[int, int], None],
        on_epoch: Callable[[int, EpochRecord], None] = lambda epoch, record: None,
        on_phase: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._on_step, self._on_epoch, self._on_phase = on_step, on_epoch, on_phase

    def on_phase(self, name: str) -> None:
        """Pass it on."""
        self._on_phase(name)

    def on_step(self, done: int) -> None:
        """Pass it on."""
        self._on_step(done, self.training.updates or 0)

    def on_epoch_end(self, epoch: int, record: EpochRecord) -> None:
        """Pass it on."""
        self._on_epoch(epoch, record)


class Driver:
    """Times and records one training, and tells its listeners.

    Call `start`; for each epoch `begin_epoch`, `step` after each execution, and `end_epoch`; then
    `end`. What is timed, and in which order, is fixed in
    docs/decisions/0006-what-is-timed-and-when.md.

    Attributes:
        training, record, listeners: as given.
        clock: of this process.
    """

    def __init__(
        self, training: Training, record: RecordInProgress, listeners: Sequence[Listener]
    ) -> None:
        """Prepare, start nothing.

        Args:
            training: that will be driven.
            record: of this process; what is seen is written into it at once.
            listeners: called in this order.
        """
        self.training, self.record, self.listeners = training, record, listeners
        self._epoch, self._stepping, self._runs = 0, "training", False
        self.clock = Clock(training.backend, training.model)
        hear = [one.on_step for one in listeners if type(one).on_step != Listener.on_step]
        self._tellers = (self.clock.on_step, *hear)

    def step(self, done: int) -> None:
        """An execution is over: `done` updates in this run. The clock hears it first."""
        for tell in self._tellers:
            tell(done)

    def start(self) -> None:
        """Make the replicas equal and tell all listeners; outside of the backend's scope."""
        self.tell_phase("compiling")  # so it is until the first step has ended
        self.training.backend.tell_steps(lambda: self.tell_phase(self._stepping))
        self.training.backend.begin_training(self.training.model)
        for one in self.listeners:
            one.training, one.clock, one.tell_phase = self.training, self.clock, self.tell_phase
            one.on_start()

    def tell_phase(self, name: str) -> None:
        """Tell all listeners what is done now."""
        for one in self.listeners:
            one.on_phase(name)

    def begin_epoch(self, epoch: int) -> None:
        """Let everybody begin the epoch, then start the clock together with all processes."""
        self._epoch = epoch
        first = epoch == self.training.first_epoch
        if first:
            self.clock.begin_epoch()  # later ones begin where the one before them ended
        else:
            self._stepping = "training"
            self.tell_phase("training")
        self.training.backend.begin_epoch()
        self.training.totals.begin(self.training.begun if first else None)
        for one in self.listeners:
            one.on_epoch_begin(epoch)
        self._runs = True
        self.clock.start()  # last, so that nothing of the above is timed

    def stop_clock(self) -> None:
        """The last step of the epoch is over; called again, it does nothing."""
        if self._runs:
            self._runs = False
            self.clock.stop()

    def end_epoch(self, logs: dict[str, Any]) -> None:
        """Stop the clock, and write the epoch's record.

        Args:
            logs: what Keras tells of the epoch and its validation.

        Raises:
            RefusalError: processes have read other batches, or no row was trained.
            DivergedError: a loss or a metric is no number.
        """
        clock, spec = self.clock, self.training.spec
        self.stop_clock()
        if self.record.startup_s is None and clock.first_step_done is not None:
            self.record.startup_s = clock.first_step_done - self.record.started_unix_s
            self.record.startup_cpu_s = clock.startup_cpu_s
        totals = self.training.totals
        before = 0 if totals.begun is None else totals.begun.rows
        first = self._epoch == self.training.first_epoch
        totals.check(self._epoch, before=self.training.updates_before if first else 0)
        fed = totals.read()
        beside_s = clock.before_s + time.perf_counter() - clock.stopped_at
        if fed.rows == before:
            raise RefusalError(
                "An epoch must train rows.",
                received="none: another training step than that of the compiled model",
                advice="Set model.train_step above model.compile, or write it into a class.",
            )
        ended = single_numbers(logs)
        if not np.isfinite(list(ended.values())).all():
            raise DivergedError(f"epoch {self._epoch + 1} ended with {ended}")
        record = EpochRecord(
            steps=clock.steps,
            examples=fed.rows - before,
            resumed_examples=before,
            train_s=clock.train_s,
            beside_s=beside_s,
            step_end_s=clock.step_end_s,
            end_since_process_start_s=time.time() - self.record.started_unix_s - clock.paused_s,
            paused_s=clock.paused_in_epoch_s,
            train={k: v for k, v in ended.items() if not k.startswith("val_")},
            validation={k[4:]: v for k, v in ended.items() if k.startswith("val_")},
            # Of one batch that is fed again and again a ledger says nothing.
            ledger=fed if spec.ablation != "no_input" else None,
            steps_per_time=self.training.steps_per_execution,
            sent_bytes=clock.sent_bytes,
            staleness=totals.staleness,
        )
        self.record.epochs += (record,)
        self.tell_phase("saving")
        for one in self.listeners:
            one.on_epoch_end(self._epoch, record)
        # What the family and Keras pay from here on, such as resets, is the next epoch's.
        self.clock.begin_epoch()

    def measure(self, listeners_s: Sequence[float]) -> None:
        """Record what it costs to tell of a step.

        Args:
            listeners_s: seconds of each execution. Their median is without the few in which a
                listener saves, compares or waits.
        """
        seconds = statistics.median(listeners_s)
        self.record.clock_s_per_step = seconds / self.training.steps_per_execution

    def end(self) -> None:
        """The last epoch is over; outside of the backend's scope."""
        self.tell_phase("saving")
        for one in self.listeners:
            one.on_trained()
        self.record.final_digest = weights_digest(self.training.model)
        for one in self.listeners:
            one.on_end()


def single_numbers(logs: dict[str, Any]) -> dict[str, float]:
    """Those of the logs that are single numbers."""
    values = {name: np.asarray(value) for name, value in (logs or {}).items()}
    numbers = {name: v for name, v in values.items() if v.size == 1 and v.dtype.kind in "biuf"}
    return {name: float(v.reshape(())) for name, v in numbers.items()}
