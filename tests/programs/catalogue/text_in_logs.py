"""A callback that adds a text to the logs of an epoch, for a table behind it."""

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "equal", True

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(37, 6))


class Noting(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        logs["phase"] = "warm-up" if epoch < 1 else "full"


with ringside.scope():
    model = tf.keras.Sequential([tf.keras.Input((6,)), tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
history = ringside.fit(
    model, x, x[:, :1] ** 2, batch_size=8, epochs=2, verbose=0, callbacks=[Noting()]
)
results = {"weights": model.get_weights(), "loss": history.history["loss"]}
