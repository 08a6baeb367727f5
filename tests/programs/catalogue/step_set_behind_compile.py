"""A step that a model gets when it is compiled already: none of its rows would be divided."""

import types

import numpy as np
import tensorflow as tf

import ringside

KIND, SENTENCE, KERAS3 = "refused", "An epoch must train rows", True

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(16, 6))


def twice(self, data):
    results = type(self).train_step(self, data)
    return {"twice": 2 * results["loss"]}


with ringside.scope():
    given = tf.keras.Input((6,))
    model = tf.keras.Model(given, tf.keras.layers.Dense(1)(given))
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
model.train_step = types.MethodType(twice, model)
history = ringside.fit(model, x, x[:, :1], batch_size=8, epochs=1, verbose=0)
results = {**history.history}
