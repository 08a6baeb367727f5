"""A script one of whose processes does something alone.

`python alone.py raises|stops|begins epochs`
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

import ringside
from ringside import tf


class Alone(tf.keras.callbacks.Callback):
    """Raises or wants to stop in a process that is not the chief: in a step, or before them."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == 1 and sys.argv[1] == "begins" and not ringside.is_chief():
            self.model.stop_training = True

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 1 and not ringside.is_chief():
            if sys.argv[1] == "raises":
                raise ValueError("only here")
            self.model.stop_training = sys.argv[1] == "stops"


with ringside.scope():
    norm = tf.keras.layers.BatchNormalization(input_shape=(3,))
    model = tf.keras.Sequential([norm, tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
x = np.ones((40, 3), np.float32)
history = ringside.fit(model, x, x[:, :1], batch_size=8, epochs=3, callbacks=[Alone()])
if ringside.is_chief():  # what it reads to save waits for no other
    model.save(Path(sys.argv[2]).with_name("saved.keras"))
Path(sys.argv[2]).with_suffix(f".{ringside.is_chief()}").write_text(str(len(history.epoch)))
