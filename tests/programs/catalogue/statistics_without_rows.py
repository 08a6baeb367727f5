"""Moving statistics, where a replica never has a row: its initial ones went into their mean."""

import numpy as np
import tensorflow as tf

import ringside

KIND, SENTENCE, KERAS3 = "refused", "Every replica must have had a row", True

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(7, 6))
data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(1)
layers = tf.keras.layers

with ringside.scope():
    model = tf.keras.Sequential(
        [tf.keras.Input((6,)), layers.BatchNormalization(), layers.Dense(1)]
    )
    model.compile(tf.keras.optimizers.SGD(0.05), "mse")
history = ringside.fit(model, data, epochs=2, verbose=0)
results = {"weights": model.get_weights(), **history.history}
