"""Keras 3's mean by the weights of the examples: a replica's weights are other ones."""

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "equal", "only"

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(37, 6))
weights = np.random.default_rng(4).integers(1, 9, 37).astype(float)

with ringside.scope():
    model = tf.keras.Sequential([tf.keras.Input((6,)), tf.keras.layers.Dense(1)])
    loss = tf.keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")
    model.compile(tf.keras.optimizers.SGD(0.1), loss)
history = ringside.fit(
    model, x, x[:, :1] ** 2, sample_weight=weights, batch_size=8, epochs=2, verbose=0
)
results = {"weights": model.get_weights(), **history.history}
