"""A table of positions, the same rows of it in every replica: Keras 3 squares slices one by one."""

from typing import Any

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "equal", "only"

tf.keras.utils.set_random_seed(7)
draw = np.random.default_rng(3)
words, y = draw.integers(0, 11, (33, 6)), draw.normal(size=(33, 1))


class Positions(tf.keras.layers.Layer):
    """Adds what a table holds for each place, as text models of keras.io do."""

    def __init__(self) -> None:
        super().__init__()
        self.table = tf.keras.layers.Embedding(6, 4)

    def call(self, x: Any) -> Any:
        """[rows, 6, 4]."""
        return x + self.table(tf.range(6))


with ringside.scope():
    inputs = tf.keras.Input((6,), dtype="int32")
    embedded = Positions()(tf.keras.layers.Embedding(11, 4)(inputs))
    outputs = tf.keras.layers.Dense(1)(tf.keras.layers.Flatten()(embedded))
    model = tf.keras.Model(inputs, outputs)
    model.compile(tf.keras.optimizers.Adam(0.01), "mse")
history = ringside.fit(model, words, y, batch_size=8, epochs=2, verbose=0)
results = {"weights": model.get_weights(), "loss": history.history["loss"]}
