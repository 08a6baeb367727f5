"""The linear model of the contract, with an optimizer that has a state to restore."""

import contextlib
import dataclasses
import functools
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import ringside
from backends import make_backend
from ringside_core.keras import KERAS, get_weights, tf
from ringside_core.specs import EpochRecord, RecordInProgress, Surroundings
from ringside_core.workloads.workload import Workload
from tests.contract.cases import GLOBAL_BATCH, NUM_TRAIN, Case
from tests.contract.linear import data, linear
from trainers.driver import Listener
from trainers.fit import train_call
from trainers.fit_call import fit_call
from trainers.step import Steps

STEPS = 4
"""Global batches of an epoch of 20 examples: 6, 6, 6 and 2."""


class Ends(tf.keras.callbacks.Callback):
    """Ends the last process without a word, or signals it, after so many updates in all."""

    def __init__(self, acts: dict[str, int]) -> None:
        super().__init__()
        self.acts, self.done = acts, 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count them."""
        self.done += 1
        if ringside.is_chief():
            return
        if self.done == self.acts["signalled"]:
            os.kill(os.getpid(), signal.SIGUSR1)
        if self.done == self.acts["dies"]:
            os._exit(9)


def momentum() -> Workload:
    """Linear regression on shuffled rows."""
    rows = tf.data.Dataset.from_tensor_slices(data(NUM_TRAIN, 0)).shuffle(NUM_TRAIN)
    return dataclasses.replace(
        linear(),
        train=rows.batch(GLOBAL_BATCH),
        optimizer=lambda: tf.keras.optimizers.SGD(0.05, momentum=0.9),
    )


def normalised() -> Workload:
    """The same on features that are normalised by the statistics of the whole batch."""

    def model() -> Any:
        layers = tf.keras.layers
        norm = layers.BatchNormalization(momentum=0.75, synchronized=True)
        return tf.keras.Sequential(
            [tf.keras.Input((3,)), norm, layers.Dense(1, kernel_initializer="ones")]
        )

    return dataclasses.replace(momentum(), model=model)


def broken_off(signalled: int = 0, dies: int = 0) -> Workload:
    """The same, of which a process is ended."""
    acts = {"signalled": signalled, "dies": dies}
    return dataclasses.replace(momentum(), callbacks=lambda: [Ends(acts)])


spec_of = functools.partial(Case("serial", 1).spec, workload="tests.training.momentum:momentum")
"""A serial run of it in float64, two epochs."""


class OnceDone(Listener):
    """Acts when so many updates have been done in this run."""

    def __init__(self, updates: int, act: Callable[[], None]) -> None:
        self._updates, self._act = updates, act

    def on_step(self, done: int) -> None:
        if done == self._updates:
            self._act()


class Kept(Listener):
    """Keeps the epochs' records."""

    def __init__(self) -> None:
        self.epochs: list[EpochRecord] = []

    def on_epoch_end(self, epoch: int, record: EpochRecord) -> None:
        self.epochs.append(record)


def break_off() -> None:
    """As an exception of the user's would."""
    raise InterruptedError("broken off")


def train_serial(
    run_dir: Path,
    *,
    stop_after: int = 0,
    trained: Callable[[], Workload] = momentum,
    listeners: Sequence[Listener] = (),
    **changes: Any,
) -> tuple[Kept, list[np.ndarray]]:
    """Train in this process; what was kept, and the weights at the end."""
    spec, kept = spec_of(**changes), Kept()
    record = RecordInProgress.begun(spec)
    floatx = tf.keras.backend.floatx()
    tf.keras.backend.set_floatx(spec.precision)
    stop = [OnceDone(stop_after, break_off)] if stop_after else []
    KERAS.begin_names()  # as in a process that begins
    try:
        with make_backend(spec, Surroundings()) as backend:
            tf.keras.utils.set_random_seed(spec.seed)  # as a scope does
            steps = Steps(backend, passes=spec.gradient_accumulation_steps)
            workload = trained()
            model = workload.compiled()
            with contextlib.suppress(InterruptedError):
                train_call(
                    fit_call(model, **workload.arguments(epochs=spec.epochs)),
                    record,
                    steps,
                    run_dir=run_dir,
                    number=1,
                    listeners=[kept, *listeners, *stop],
                    rebuilt=workload.model,
                )
            return kept, get_weights(model)
    finally:
        tf.keras.backend.set_floatx(floatx)
