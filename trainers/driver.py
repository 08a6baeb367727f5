"""One training, whoever makes its steps: timed, recorded, and told to its listeners.

`trainers.fit` drives a training with `Model.fit`, `trainers.loop` with a written-out loop. Another
way to make steps needs another adapter that calls the same `Driver`, and nothing else.
"""

import copy
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.base import Backend
from ringside_core.specs import EpochRecord, InputShard, LedgerDigest, RecordInProgress, RunSpec
from ringside_core.workloads.pipeline import Pipeline
from ringside_core.workloads.workload import Workload
from trainers.build import weights_digest
from trainers.clock import Clock
from trainers.ledger import digest, fed_ids
from trainers.own_evaluation import AnyEvaluation, NoEvaluation
from trainers.planned import check_fed, check_validated
from trainers.totals import BegunEpoch, Totals


class DivergedError(FloatingPointError):
    """A loss or a metric is no longer a number."""


@dataclass(frozen=True)
class Training:
    """A training before its first step: what its listeners may look at.

    Attributes:
        batches: input shard → batches of one replica, from where the training begins.
        steps_per_epoch: updates, over all readers.
        model: compiled, with its initial weights.
        totals: what the training step adds up.
        evaluate: of the validation split.
        first_epoch: number of the first epoch of this run, from 0.
        begun: what was done of that epoch before a restart; None: nothing.
        updates_before: updates of that epoch before the restart.
        updates: that this run makes.
    """

    spec: RunSpec
    workload: Workload
    backend: Backend
    train: Pipeline
    validation: Pipeline
    batches: Callable[[InputShard], Any]
    steps_per_epoch: int
    model: Any
    totals: Totals
    evaluate: AnyEvaluation
    first_epoch: int
    begun: BegunEpoch | None
    updates_before: int
    updates: int
    steps_per_execution: int = 1
    feed: str = ""  # what must not change when a run goes on; empty: trainers.resume says it

    def place(self, *, epoch_is_over: bool) -> Any:
        """None: planned data are found by their epoch and update."""
        del epoch_is_over
        return None


class Listener:
    """Is told how a training goes. A subclass overrides the methods that it needs.

    Attributes:
        training, clock: set before `on_start`.
        tell_phase: likewise; it tells all listeners what is done now.
        measured: whether it does the same little work in each step, which `Driver.measure` repeats.
    """

    training: Training
    clock: Clock
    tell_phase: Callable[[str], None]
    measured = False

    def on_phase(self, name: str) -> None:
        """What is done now: compiling, training, evaluating or saving.

        It is told again after each step that can be heard of in no other way.
        """

    def on_start(self) -> None:
        """All replicas hold the initial weights; no step has been made. Not timed."""

    def on_epoch_begin(self, epoch: int) -> None:
        """An epoch begins, counted from 0; its clock does not run yet."""

    def on_step(self, done: int) -> None:
        """An execution of one or several updates is over: `done` updates in this run. Timed."""

    def on_fed(self, epoch: int, ids: NDArray[Any]) -> None:
        """The full list of an epoch (`--ledger full`), before anything of the epoch is checked.

        Args:
            epoch: from 0.
            ids: [steps, replicas, per_replica_batch]; -1 where padding was fed, -2 where nothing
                was.
        """

    def on_test_begin(self) -> None:
        """The validation of an epoch begins; the clock has stopped."""

    def on_test_end(self, values: dict[str, float]) -> None:
        """The validation is over.

        Args:
            values: by name, over the whole split.
        """

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

    measured = True

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


def step_teller(listeners: Iterable[Any]) -> Callable[[int], None]:
    """A function that tells the listeners of a step, in their order; only those that want it."""
    told = tuple(
        one.on_step for one in listeners if getattr(type(one), "on_step", 0) != Listener.on_step
    )

    def step(done: int) -> None:
        for tell in told:
            tell(done)

    return step


def seconds_per_execution(
    listeners: Sequence[Any], *, done: int, through: Callable[..., Callable[[], None]]
) -> float:
    """What it takes to tell these listeners of a step: median of 20 means over 100 steps each.

    Copies are told, whose lists are their own, so the listeners notice nothing. A launcher is told
    the number of updates once more.

    Args:
        listeners: of a training that is over, the clock among them.
        done: updates of the training.
        through: (step teller, done) → a function that tells once, as who makes the steps does.
    """
    copies = [copy.copy(one) for one in listeners]
    for one in copies:
        vars(one).update({k: list(v) for k, v in vars(one).items() if type(v) is list})
    tell = through(step_teller(copies), done)
    means = []
    for _ in range(20):
        began = time.perf_counter()
        for _ in range(100):
            tell()
        means.append((time.perf_counter() - began) / 100)
    return statistics.median(means)


class Driver:
    """Times and records one training, and tells its listeners.

    Call `start`; for each epoch `begin_epoch`, `step` after each execution, and `end_epoch`; then
    `end`. What is timed, and in which order, is fixed in
    docs/decisions/0006-what-is-timed-and-when.md.

    Attributes:
        training, record, listeners: as given.
        clock: of this process.
        step: call it with the updates done in this run. It tells the clock first.
    """

    def __init__(
        self,
        training: Training,
        record: RecordInProgress,
        listeners: Sequence[Listener],
    ) -> None:
        """Prepare, start nothing.

        Args:
            training: that will be driven.
            record: of this process; what is seen is written into it at once.
            listeners: told in this order.
        """
        self.training, self.record, self.listeners = training, record, listeners
        self._epoch, self._stepping, self._runs = 0, "training", False
        self.clock = Clock(training.backend, training.model)
        self.step = step_teller((self.clock, *listeners))

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
        """Let everybody begin the epoch, then start the clock together with all processes.

        `Model.fit` has called `Model.reset_metrics` by then; another loop must do so itself.
        """
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

    def end_epoch(self) -> None:
        """Stop the clock, validate, and write the epoch's record.

        Raises:
            LedgerError: other examples than planned were fed, or in another order.
            DivergedError: a loss or a metric is no number.
        """
        clock, spec = self.clock, self.training.spec
        self.stop_clock()
        if self.record.startup_s is None and clock.first_step_done is not None:
            self.record.startup_s = clock.first_step_done - self.record.started_unix_s
            self.record.startup_cpu_s = clock.startup_cpu_s
        begun = self.training.totals.begun
        before = 0 if begun is None else begun.examples
        train, fed, fed_here = self._read_totals()
        beside_s = clock.before_s + time.perf_counter() - clock.stopped_at
        validation, counted = self._validate()
        _check_finite(self._epoch, train, validation)
        # Of one batch that is fed again and again a ledger says nothing.
        planned = spec.ablation != "no_input"
        record = EpochRecord(
            steps=clock.steps,
            examples=fed.count - before,
            resumed_examples=before,
            train_s=clock.train_s,
            beside_s=beside_s,
            step_end_s=clock.step_end_s,
            end_since_process_start_s=time.time() - self.record.started_unix_s - clock.paused_s,
            paused_s=clock.paused_in_epoch_s,
            train=train,
            validation=validation,
            validation_examples=counted,
            ledger=fed if planned else None,
            ledger_here=fed_here if planned else (),
            validation_ledger=self.training.evaluate.ledger,
            steps_per_time=self.training.steps_per_execution,
            sent_bytes=clock.sent_bytes,
        )
        self.record.epochs += (record,)
        self.tell_phase("saving")
        for one in self.listeners:
            one.on_epoch_end(self._epoch, record)
        # What the family and Keras pay from here on, such as resets, is the next epoch's.
        self.clock.begin_epoch()

    def measure(self, through: Callable[..., Callable[[], None]]) -> None:
        """Record what it costs to tell of a step; outside of the backend's scope.

        Args:
            through: see `seconds_per_execution`.
        """
        # Those that do the same little work in each step; saving is no cost of a step.
        measured = [one for one in self.listeners if one.measured]
        seconds = seconds_per_execution(
            [self.clock, *measured], done=self.clock.done, through=through
        )
        self.record.clock_s_per_step = seconds / self.training.steps_per_execution

    def end(self) -> None:
        """The last epoch is over; outside of the backend's scope."""
        self.tell_phase("saving")
        for one in self.listeners:
            one.on_trained()
        self.record.final_digest = weights_digest(self.training.model)
        for one in self.listeners:
            one.on_end()

    def _read_totals(self) -> tuple[dict[str, float], LedgerDigest, tuple[LedgerDigest, ...]]:
        """The epoch's training metrics by name, what all replicas were fed, and those here."""
        totals, backend = self.training.totals, self.training.backend
        here = totals.local_ledgers()
        merged = totals.results()
        if totals.fed is not None:
            ids = fed_ids(merged.pop(totals.fed.name))
            for one in self.listeners:
                one.on_fed(self._epoch, ids)
        ledger = merged.pop(totals.ledger.name)
        fed = digest(ledger)
        loss = float(merged.pop(totals.loss_sum.name)) / max(1, fed.count)
        spec, train = self.training.spec, self.training.train
        if spec.ablation != "no_input" and backend.capabilities.synchronous:
            readers, ordered = backend.num_readers, totals.ordered
            check_fed(ledger, spec, train, self._epoch, readers=readers, ordered=ordered)
        return totals.told(merged, loss), fed, here

    def _validate(self) -> tuple[dict[str, float], int]:
        """The validation metrics by name, and how many examples they are over."""
        training = self.training
        training.backend.average_statistics(training.model)
        if not training.workload.validates or isinstance(training.evaluate, NoEvaluation):
            return {}, 0
        self._stepping = "evaluating"
        self.tell_phase("compiling" if self._epoch == training.first_epoch else "evaluating")
        for one in self.listeners:
            one.on_test_begin()
        values, counted = training.evaluate()
        assert training.evaluate.ledger is not None
        readers = training.backend.num_readers
        check_validated(training.evaluate.ledger, training.validation, self._epoch, readers=readers)
        for one in self.listeners:
            one.on_test_end(values)
        return values, counted


def _check_finite(epoch: int, train: dict[str, float], validation: dict[str, float]) -> None:
    ended = {**train, **{f"val_{name}": value for name, value in validation.items()}}
    if not np.isfinite(list(ended.values())).all():
        raise DivergedError(f"epoch {epoch + 1} ended with {ended}")
