"""Dropout that is compared: each replica must draw the numbers of its rows, as one draws all."""

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "equal", True

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(37, 6))
layers = tf.keras.layers

with ringside.scope():
    model = tf.keras.Sequential(
        [tf.keras.Input((6,)), layers.GaussianNoise(0.1), layers.Dense(16), layers.Dropout(0.5)]
    )
    model.add(layers.Dense(1))
    model.compile(tf.keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
history = ringside.fit(
    model, x, x[:, :1], batch_size=8, epochs=2, validation_split=0.2, draws=7, verbose=0
)
results = {"weights": model.get_weights(), **history.history}
