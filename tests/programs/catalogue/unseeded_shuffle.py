"""Unseeded shuffles, random maps and filters: read differently by processes, rows train twice."""

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "equal", True

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(66, 6))
x[::2, 0] = -1.0  # so that 33 rows are kept, of which the last batch has one
x[1::2, 0] = 1.0
data = tf.data.Dataset.from_tensor_slices((x, x[:, 1:3] ** 2))
data = data.filter(lambda a, _: a[0] > 0)  # of unknown length
held = data.batch(5)
data = data.shuffle(66)
data = data.map(lambda a, b: (a + tf.random.normal([6], stddev=0.1, dtype=a.dtype), b))
data = data.batch(8).prefetch(2)

with ringside.scope():
    model = tf.keras.Sequential(
        [tf.keras.Input((6,)), tf.keras.layers.Dense(8, "tanh"), tf.keras.layers.Dense(2)]
    )
    model.compile(tf.keras.optimizers.SGD(0.1, momentum=0.9), "mse", metrics=["mae"])
history = ringside.fit(model, data, epochs=2, validation_data=held, verbose=0)
results = {"weights": model.get_weights(), **history.history}
