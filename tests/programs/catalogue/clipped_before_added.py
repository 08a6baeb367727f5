"""Keras clips what an update applies: clipped in each replica before it is added, it is another."""

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "equal", True

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(37, 6))
results = {}

for clip in ("clipnorm", "global_clipnorm", "clipvalue"):
    with ringside.scope():
        model = tf.keras.Sequential(
            [tf.keras.Input((6,)), tf.keras.layers.Dense(4, "tanh"), tf.keras.layers.Dense(1)]
        )
        model.compile(tf.keras.optimizers.SGD(0.5, **{clip: 0.1}), "mse")
    history = ringside.fit(model, x, x[:, :1] ** 2, batch_size=8, epochs=2, verbose=0)
    results |= {f"{clip} weights": model.get_weights(), f"{clip} loss": history.history["loss"]}
