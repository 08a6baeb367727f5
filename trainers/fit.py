"""Trains a workload on a backend with `Model.fit`."""

from collections.abc import Callable
from typing import Any

from ringside_core.keras import VERSION, tf
from trainers.driver import Driver
from trainers.loop import loop


def fit(driver: Driver) -> None:
    """Train for the epochs of a prepared training (`trainers.prepare`)."""
    training = driver.training
    spec, model, backend = training.spec, training.model, training.backend
    if (VERSION == 3 and training.updates_before) or not training.updates:
        loop(driver)  # Keras 3 has no way to begin within an epoch; or nothing is left to make
        return
    driver.start()
    # Begin within an epoch, as legacy Keras' own BackupAndRestore does; the public arguments know
    # whole epochs only.
    vars(model)["_maybe_load_initial_counters_from_ckpt"] = lambda steps, epoch: (
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
    driver.measure(through_keras)
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


def through_keras(step: Callable[[int], None], done: int) -> Callable[[], None]:
    """A function that tells of a step as Keras does."""
    called = tf.keras.callbacks.CallbackList([_StepAdapter(step, done)])

    def tell() -> None:
        called.on_train_batch_begin(-1)
        called.on_train_batch_end(-1, {})

    return tell
