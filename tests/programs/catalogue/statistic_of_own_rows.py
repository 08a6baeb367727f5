"""A layer assigns a statistic of its batch: every replica keeps another, and saves one of them."""

import numpy as np
import tensorflow as tf

import ringside

KIND, SENTENCE = "refused", "is written from own rows"

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(0).normal(size=(37, 3))


class Centred(tf.keras.layers.Layer):
    def build(self, shape):
        self.mean = self.add_weight(name="mean", shape=(), trainable=False, initializer="zeros")

    def call(self, inputs, training=None):
        if training:
            self.mean.assign(0.9 * self.mean + 0.1 * tf.reduce_mean(inputs))
        return inputs - self.mean


with ringside.scope():
    model = tf.keras.Sequential([tf.keras.Input((3,)), Centred(), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
ringside.fit(model, x, x[:, :1], batch_size=8, epochs=2, verbose=0)
results = {"weights": model.get_weights()}
