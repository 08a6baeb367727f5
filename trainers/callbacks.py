"""Keras callbacks of a training's author: with metrics that are merged over all replicas."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from ringside_core.keras import is_of_keras, looks_at_steps, tf
from ringside_core.specs import EpochRecord, RefusalError
from ringside_core.workloads.without_horovod import check_not_horovods
from trainers import checkpoint
from trainers.callback_state import CallbackState, Learned
from trainers.driver import Listener

_kinds = tf.keras.callbacks
# Every process takes part where a strategy reads variables by a collective; there Keras lets all
# but the chief write into folders that it removes.
_WRITE_TOGETHER = (_kinds.ModelCheckpoint, _kinds.TensorBoard)
_WRITE_ALONE = (_kinds.CSVLogger, _kinds.RemoteMonitor)
_OF_TEST_BATCHES = ("on_test_batch_begin", "on_test_batch_end")
_DONE_ANYWAY = (_kinds.ProgbarLogger, _kinds.TerminateOnNaN)


class Callbacks(Listener):
    """Calls an author's callbacks in every process that they belong to.

    All processes see the same metrics at the end of an epoch, those of the whole run, so that each
    decides alike. Whether to stop is asked of all: one process that stopped alone would leave the
    others waiting in a collective.

    Attributes:
        history: what Keras calls History.
    """

    history: Any

    def __init__(self, given: Sequence[Any], *, first_epoch: int = 0) -> None:
        """Call nothing yet.

        Args:
            given: the callbacks.
            first_epoch: number of this training's first epoch, as the callbacks are told it.
        """
        self._given, self._first_epoch = tuple(given), first_epoch
        self._stops, self._told = False, dict[str, float]()
        self._goes_on_from: CallbackState | None = None
        check_not_horovods(*given)
        for one in given:
            if isinstance(one, _kinds.BackupAndRestore):
                raise RefusalError(
                    "Ringside writes and reads the checkpoints of a training itself.",
                    received="BackupAndRestore among the callbacks",
                    advice="Leave it out. Under ringside launch, go on with --resume-from.",
                )

    def go_on_from(
        self, state: CallbackState | None, model: Any, *, stopped: bool
    ) -> tuple[str, ...]:
        """Let them know after their beginning what they had learned.

        Args:
            state: of a checkpoint; None: it has none.
            model: that is trained.
            stopped: they have stopped that training, which is trained on now.

        Returns:
            Warnings of what begins anew.
        """
        self._goes_on_from, warnings = learned_by(self._given, state, model, stopped=stopped)
        return warnings

    @property
    def never_called(self) -> tuple[str, ...]:
        """See `never_called`."""
        return never_called(self._given)

    def learned(self) -> CallbackState:
        """What they have learned until now."""
        return self._learned.state(stops=self._stops)

    def on_start(self) -> None:
        """Tell them that the training begins."""
        training = self.training
        with training.backend.scope():
            self._list = _kinds.CallbackList(
                of_this_process(self._given, training.model, training.backend),
                add_history=True,
                model=training.model,
                verbose=0,
                epochs=self._first_epoch + training.spec.epochs,
                steps=training.steps_per_epoch,
            )
            self.history = training.model.history
            self._learned = Learned(self._given, training.model)
            with self._put_back():
                self._list.on_train_begin()
                self._learned.begin()

    def on_epoch_begin(self, epoch: int) -> None:
        """Pass it on."""
        self.training.model.history = self.history  # `Model.fit` has set its own
        training = self.training
        begun = training.begun is not None and epoch == training.first_epoch
        with self._put_back() if begun else nullcontext():
            self._begin_epoch(epoch)
        self._goes_on_from = None

    def _begin_epoch(self, epoch: int) -> None:
        self._list.on_epoch_begin(self._first_epoch + epoch)
        self._hold_stop()

    @contextmanager
    def _put_back(self) -> Iterator[None]:
        """Of a training that goes on: what callbacks do in here was done before the checkpoint."""
        state, training = self._goes_on_from, self.training
        if state is None:
            yield
            return
        values = checkpoint.values_in(checkpoint.snapshot(training.model))
        yield
        checkpoint.put(values, training.model, training.backend)
        self._stops = state.stops
        with training.backend.scope():
            self._learned.restore(state)

    def on_test_begin(self) -> None:
        """Pass it on."""
        self._list.on_test_begin()

    def on_test_end(self, values: dict[str, float]) -> None:
        """Pass on the merged metrics."""
        self._list.on_test_end(values)

    def on_epoch_end(self, epoch: int, record: EpochRecord) -> None:
        """Pass on the merged metrics, and agree on whether to stop."""
        values = {f"val_{name}": value for name, value in record.validation.items()}
        self._told = {**record.train, **values}
        self._list.on_epoch_end(self._first_epoch + epoch, self._told)
        model = self.training.model
        wanted = np.array([float(self._stops or model.stop_training)])
        model.stop_training = bool(self.training.backend.all_reduce(wanted, "max")[0])

    def on_trained(self) -> None:
        """Tell them that the training is over."""
        with self.training.backend.scope():
            self._list.on_train_end(self._told)
        self.training.model.history = self.history

    def _hold_stop(self) -> None:
        """Keep the wish to stop within an epoch: Keras would end it in this process alone."""
        self._stops = self._stops or self.training.model.stop_training
        self.training.model.stop_training = False


class CallbacksWithin(Callbacks):
    """Also calls them at each step. No metrics are told there: replicas have their own.

    A callback that wants to stop within an epoch stops at its end: only there can all agree.
    """

    def _begin_epoch(self, epoch: int) -> None:
        super()._begin_epoch(epoch)
        self._begin_step(self.training.updates_before if self.training.first_epoch == epoch else 0)

    def on_step(self, done: int) -> None:
        """Pass it on, and that the next step begins."""
        training = self.training
        of_epoch = (training.updates_before + done) % training.steps_per_epoch
        last = (of_epoch or training.steps_per_epoch) - 1
        self._list.on_train_batch_end(last, {})
        self._hold_stop()
        if of_epoch:
            self._begin_step(of_epoch)

    def _begin_step(self, step: int) -> None:
        self._list.on_train_batch_begin(step, {})
        self._hold_stop()


def learned_by(
    given: Sequence[Any], state: CallbackState | None, model: Any, *, stopped: bool
) -> tuple[CallbackState | None, tuple[str, ...]]:
    """From what callbacks go on at a restart (None: from nothing), and warnings of what does not.

    Args:
        given: the callbacks.
        state: of a checkpoint; None: it has none.
        model: that is trained.
        stopped: they have stopped that training, which is trained on now.
    """
    if not given:
        return None, ()
    if stopped or state is None or not state.fits(given, model):
        names = sorted({type(callback).__name__ for callback in given})
        said = "the checkpoint does not hold what these callbacks have learned"
        if stopped:
            said = "callbacks had stopped this training"
        return None, (f"{', '.join(names)} began anew at the restart: {said}.",)
    if not state.left_out:
        return state, ()
    said = "a checkpoint holds numbers, texts and NumPy arrays of a callback, and lists of them"
    return state, (f"{', '.join(state.left_out)} began anew at the restart: {said}.",)


def never_called(given: Sequence[Any]) -> tuple[str, ...]:
    """Warnings of callbacks with methods for the batches of a validation, one sentence each.

    Its metrics are summed over replicas and read once, at its end. Keras' own are quiet.

    Args:
        given: Keras callbacks.
    """
    found = []
    for one in given:
        own = [name for name in _OF_TEST_BATCHES if not is_of_keras(getattr(one, name))]
        if own:
            are = "are" if len(own) > 1 else "is"
            found.append(
                f"{type(one).__name__}: {' and '.join(own)} {are} never called: the metrics of a "
                "validation are those of the whole one. Use on_test_end or on_epoch_end."
            )
    return tuple(found)


def calling(given: Sequence[Any], *, first_epoch: int = 0) -> Callbacks:
    """The listener that calls these callbacks.

    Args:
        given: Keras callbacks.
        first_epoch: see Callbacks.

    Raises:
        RefusalError: one of them does what only Ringside can do.
    """
    within = any(looks_at_steps(one) for one in given if _is_called(one))
    return (CallbacksWithin if within else Callbacks)(given, first_epoch=first_epoch)


def _is_called(callback: Any) -> bool:
    return type(callback) not in _DONE_ANYWAY


def of_this_process(given: Sequence[Any], model: Any, backend: Any) -> list[Any]:
    """Those that this process calls: a file is written once.

    Args:
        given: Keras callbacks.
        model: that is trained.
        backend: started.
    """
    together = model.distribute_strategy.extended._in_multi_worker_mode()

    def here(one: Any) -> bool:
        if isinstance(one, _WRITE_ALONE) or (isinstance(one, _WRITE_TOGETHER) and not together):
            return bool(backend.is_chief)
        return True

    return [one for one in given if _is_called(one) and here(one)]
