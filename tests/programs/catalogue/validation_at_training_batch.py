"""Validation has a batch, weights and epochs of its own; numbering begins at `initial_epoch`."""

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "equal", True

tf.keras.utils.set_random_seed(7)
rng = np.random.default_rng(3)
x, held = rng.normal(size=(37, 6)), rng.normal(size=(11, 6))
y, wanted = x[:, :1] ** 2, held[:, :1] ** 2

with ringside.scope():
    model = tf.keras.Sequential(
        [tf.keras.Input((6,)), tf.keras.layers.Dense(8, "tanh"), tf.keras.layers.Dense(1)]
    )
    model.compile(tf.keras.optimizers.SGD(0.1), "mse", metrics=["mae"], weighted_metrics=["mse"])
history = ringside.fit(
    model,
    x,
    y,
    batch_size=8,
    initial_epoch=1,
    epochs=4,
    validation_data=(held, wanted, np.arange(11) / 5),
    validation_batch_size=5,  # the last one has one row
    validation_freq=2,
    verbose=0,
)
results = {"weights": model.get_weights(), "epochs": history.epoch, **history.history}
