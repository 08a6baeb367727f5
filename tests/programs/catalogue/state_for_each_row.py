"""A recurrent layer that keeps its state from batch to batch, for each row."""

import numpy as np
import tensorflow as tf

import ringside

KIND, SENTENCE, KERAS3 = "refused", "must not keep a state for each row", "only"

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(40, 5, 2))

with ringside.scope():
    given = tf.keras.Input(batch_shape=(8, 5, 2))
    made = tf.keras.layers.SimpleRNN(4, stateful=True)(given)
    model = tf.keras.Model(given, tf.keras.layers.Dense(1)(made))
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
history = ringside.fit(model, x, x[:, 0, :1], batch_size=8, epochs=2, shuffle=False, verbose=0)
results = {"weights": model.get_weights(), **history.history}
