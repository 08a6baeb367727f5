"""The encoder within an autoencoder is asked for its codes: it was never compiled itself."""

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "equal", True

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(37, 6))
layers = tf.keras.layers

with ringside.scope():
    encoder = tf.keras.Sequential([tf.keras.Input((6,)), layers.Dense(2, "tanh")])
    model = tf.keras.Sequential([encoder, layers.Dense(6)])
    model.compile(tf.keras.optimizers.Adam(0.01), "mse")
history = ringside.fit(model, x, x, batch_size=8, epochs=2, verbose=0)
results = {"weights": model.get_weights(), **history.history}
results["codes"] = encoder.predict(x[:11], batch_size=5, verbose=0)
