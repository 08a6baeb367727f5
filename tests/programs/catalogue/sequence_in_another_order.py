"""A Sequence that shuffles at the end of an epoch: the second epoch has another order."""

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "equal", True

tf.keras.utils.set_random_seed(7)
rng = np.random.default_rng(3)


class Batches(tf.keras.utils.Sequence):
    def __init__(self, rows):
        super().__init__()
        self.x = rng.normal(size=(rows, 6))
        self.order = np.arange(rows)

    def __len__(self):
        return -(-len(self.x) // 8)

    def __getitem__(self, number):
        rows = self.order[8 * number : 8 * number + 8]
        return self.x[rows], self.x[rows, :1] ** 2, 1.0 + rows % 3

    def on_epoch_end(self):
        self.order = np.roll(self.order[::-1], 5)


with ringside.scope():
    model = tf.keras.Sequential(
        [tf.keras.Input((6,)), tf.keras.layers.Dense(8, "tanh"), tf.keras.layers.Dense(1)]
    )
    model.compile(tf.keras.optimizers.SGD(0.05), "mse", weighted_metrics=["mae"])
history = ringside.fit(
    model, Batches(35), epochs=2, shuffle=False, validation_data=Batches(9), verbose=0
)
results = {"weights": model.get_weights(), **history.history}
