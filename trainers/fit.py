"""Trains a workload on a backend with `Model.fit`."""

import copy
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from ringside_core.keras import tf
from trainers.driver import Driver, Progress, step_teller
from trainers.sync_proof import SyncProof


def fit(driver: Driver) -> None:
    """Train for the epochs of a prepared training (`trainers.prepare`)."""
    training, record = driver.training, driver.record
    spec, model, backend = training.spec, training.model, training.backend
    driver.start()
    # Begin within an epoch, as Keras' own BackupAndRestore does; the public arguments know whole
    # epochs only.
    model._maybe_load_initial_counters_from_ckpt = lambda steps, epoch: (
        epoch,
        training.updates_before,
    )
    with backend.scope():
        model.fit(
            backend.distribute(training.batches),
            initial_epoch=training.first_epoch,
            epochs=spec.epochs,
            steps_per_epoch=training.steps_per_epoch,
            callbacks=[_KerasAdapter(driver, training.updates_before)],
            verbose=0,
        )
    # Those that do the same little work in each step; saving is no cost of a step.
    measured = [one for one in driver.listeners if isinstance(one, SyncProof | Progress)]
    seconds = seconds_per_execution([driver.clock, *measured], done=training.updates)
    record.clock_s_per_step = seconds / spec.steps_per_execution
    driver.end()


class _StepAdapter(tf.keras.callbacks.Callback):
    """Calls a function with the updates done after each of Keras' calls of the training step."""

    def __init__(self, step: Callable[[int], None], done: int) -> None:
        super().__init__()
        # It reads no logs. Unsaid, Keras would copy them to the host after every step.
        self._supports_tf_logs = True
        self._step = step
        self._before_epoch = done  # updates of this run before the epoch's number 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """`batch` is the number, in its epoch, of the last update made."""
        self._step(self._before_epoch + batch + 1)


class _KerasAdapter(_StepAdapter):
    """Lets `Model.fit` drive a training."""

    def __init__(self, driver: Driver, updates_before: int) -> None:
        super().__init__(driver.step, -updates_before)
        self._driver = driver

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Begin it."""
        self._driver.begin_epoch(epoch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """End it."""
        self._driver.end_epoch()
        self._before_epoch = self._driver.clock.done


def seconds_per_execution(listeners: Sequence[Any], *, done: int) -> float:
    """What Keras takes to tell these listeners of a step: median of 20 means over 100 steps each.

    Copies are told, whose lists are their own, so the listeners notice nothing. A launcher is told
    the number of updates once more.

    Args:
        listeners: of a training that is over, the clock among them.
        done: updates of the training.
    """
    copies = [copy.copy(one) for one in listeners]
    for one in copies:
        vars(one).update({k: list(v) for k, v in vars(one).items() if type(v) is list})
    called = tf.keras.callbacks.CallbackList([_StepAdapter(step_teller(copies), done)])
    means = []
    for _ in range(20):
        began = time.perf_counter()
        for _ in range(100):
            called.on_train_batch_begin(-1)
            called.on_train_batch_end(-1, {})
        means.append((time.perf_counter() - began) / 100)
    return statistics.median(means)
