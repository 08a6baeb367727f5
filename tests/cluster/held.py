"""Programs that a fault is made in: a small model that draws, and one that a file slows down."""

import dataclasses
import time
from pathlib import Path
from typing import Any

import numpy as np

from ringside import Workload, tf


class Held(tf.keras.callbacks.Callback):
    """A tenth of a second for each update."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """So that a fault comes in the middle, however fast the machine is."""
        if Path(self.file).exists():
            time.sleep(0.1)


def program(dropout: float = 0.5) -> Workload:
    """A model with dropout on 60 examples."""

    def model() -> Any:
        layers = tf.keras.layers
        return tf.keras.Sequential(
            [layers.Input((4,)), layers.Dense(8, "tanh"), layers.Dropout(dropout), layers.Dense(1)]
        )

    numbers = np.random.default_rng(0)
    x = numbers.normal(size=(60, 4))
    y = x @ numbers.normal(size=(4, 1))
    return Workload(
        name="held",
        model=model,
        train=(x, y),
        validation=(x[:12], y[:12]),
        loss=tf.keras.losses.MeanSquaredError(),
        optimizer=lambda: tf.keras.optimizers.SGD(0.05, momentum=0.9),
        metrics=list,
        reference_batch=6,
    )


def workload(file: str) -> Workload:
    """Slow as long as the file is there; without dropout, whose draws follow the replicas."""
    return dataclasses.replace(program(dropout=0.0), callbacks=lambda: [Held(file)])
