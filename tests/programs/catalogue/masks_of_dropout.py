"""Dropout: both ranks of Horovod draw the same mask; replicas must draw others, from one seed."""

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "chance", True

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(37, 6))
layers = tf.keras.layers

with ringside.scope():
    model = tf.keras.Sequential(
        [tf.keras.Input((6,)), layers.GaussianNoise(0.1), layers.Dense(16), layers.Dropout(0.5)]
    )
    model.add(layers.Dense(1))
    model.compile(tf.keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
history = ringside.fit(model, x, x[:, :1], batch_size=8, epochs=2, validation_split=0.2, verbose=0)
results = {"weights": model.get_weights(), **history.history}
