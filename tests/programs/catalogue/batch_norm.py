"""Batch normalisation sees own rows, and a replica without rows must leave its statistics alone."""

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "coupled", True

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(33, 6))  # the last batch has one row
layers = tf.keras.layers

with ringside.scope():
    model = tf.keras.Sequential(
        [tf.keras.Input((6,)), layers.Dense(4), layers.BatchNormalization(momentum=0.9)]
    )
    model.add(layers.Dense(1))
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
history = ringside.fit(
    model, x, x[:, :1] ** 2, batch_size=8, epochs=2, validation_data=(x, x[:, :1] ** 2), verbose=0
)
results = {"weights": model.get_weights(), **history.history}
