"""A layer that adds up what it sees, as in Keras' guide to layers."""

import numpy as np
import tensorflow as tf

import ringside

KIND, SENTENCE, KERAS3 = "refused", "must hold the same variables", True

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(40, 6))


class ComputeSum(tf.keras.layers.Layer):
    def build(self, shape):
        self.total = self.add_weight(
            name="total", shape=(shape[-1],), initializer="zeros", trainable=False
        )

    def call(self, inputs):
        self.total.assign_add(tf.reduce_sum(inputs, axis=0))
        return inputs


with ringside.scope():
    model = tf.keras.Sequential([tf.keras.Input((6,)), ComputeSum(), tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
history = ringside.fit(model, x, x[:, :1], batch_size=8, epochs=1, verbose=0)
results = {"weights": model.get_weights(), **history.history}
