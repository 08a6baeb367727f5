"""A divergence that is summed over the rows, beside a mean: own rows' part of it is too small."""

import numpy as np
import tensorflow as tf

import ringside

KIND, SENTENCE = "refused", "Part of your loss grows with the number of rows"

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(37, 6))
layers = tf.keras.layers


class Sampling(layers.Layer):
    def call(self, inputs):
        mean, log_var = inputs
        kl = -0.5 * tf.reduce_sum(1 + log_var - tf.square(mean) - tf.exp(log_var))
        self.add_loss(0.01 * kl)
        return mean + tf.exp(0.5 * log_var) * tf.sin(17.0 * mean)


with ringside.scope():
    given = tf.keras.Input((6,))
    z = Sampling()([layers.Dense(2)(given), layers.Dense(2)(given)])
    model = tf.keras.Model(given, layers.Dense(6)(layers.Dense(4, "tanh")(z)))
    model.compile(tf.keras.optimizers.Adam(0.01), "mse")
ringside.fit(model, x, x, batch_size=8, epochs=2, verbose=0)
results = {"weights": model.get_weights()}
