"""A script whose trainings are broken off, each within its second epoch, once.

`python broken_off.py FOLDER`; with a file FOLDER/whole nothing is broken off.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

import ringside
from ringside import tf

FOLDER = Path(sys.argv[1])
ROWS, BATCH = 45, 8


class Breaks(tf.keras.callbacks.Callback):
    """Sends this process a signal after the fourth update of the second epoch."""

    def __init__(self, name: str, number: int) -> None:
        super().__init__()
        self.file, self.number = str(FOLDER / f"{name}.broken"), number

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if (FOLDER / "whole").exists() or os.path.exists(self.file) or not ringside.is_chief():
            return
        if (self.epoch, batch) == (1, 3):
            Path(self.file).touch()
            os.kill(os.getpid(), self.number)


class Slows(tf.keras.callbacks.Callback):
    """Lowers the rate after each update, by all that it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seen += 1
        self.model.optimizer.learning_rate.assign(0.05 / (1 + 0.1 * self.seen))


drawn = np.random.default_rng(1)
x = drawn.normal(size=(ROWS, 3))
y = x @ drawn.normal(size=(3, 1)) + 0.1
rows = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(ROWS, seed=7)
held_out = tf.data.Dataset.from_tensor_slices((x[:20], y[:20])).shuffle(20).batch(8)
FEEDS: dict[str, tuple[int, dict[str, Any]]] = {
    "arrays": (signal.SIGKILL, {"x": x, "y": y, "batch_size": BATCH}),
    "data": (signal.SIGTERM, {"x": rows.batch(BATCH)}),
    "unknown": (signal.SIGKILL, {"x": rows.batch(BATCH).filter(lambda x, y: True)}),
    "repeated": (signal.SIGUSR1, {"x": rows.repeat().batch(BATCH), "steps_per_epoch": 5}),
}
for name, (number, given) in FEEDS.items():
    with ringside.scope():
        layers = [tf.keras.layers.Dense(4, "tanh", input_shape=(3,)), tf.keras.layers.Dense(1)]
        model = tf.keras.Sequential(layers)
        model.compile(tf.keras.optimizers.Adam(0.05), "mse", metrics=["mae"])
    watching: list[Any] = [Slows(), Breaks(name, number)]
    history = ringside.fit(
        model, **given, epochs=3, validation_data=held_out, callbacks=watching, verbose=0
    )
    said: dict[str, Any] = {n: list(history.history[n]) for n in ("loss", "mae", "val_loss")}
    said |= {"seen": watching[0].seen}
    said |= {"weights": np.concatenate([w.ravel() for w in model.get_weights()]).tolist()}
    if ringside.is_chief() and np.isfinite(history.history["loss"]).all():  # else it was over
        (FOLDER / f"{name}.json").write_text(json.dumps(said))
