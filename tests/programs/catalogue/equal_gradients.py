"""Weights with one gradient: one summed over ranks is enough, but each rank must choose the same.

A rank with one row makes a mean and a sum over its rows equal, and one with two does not.
"""

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "equal", True

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(24, 6))
data = tf.data.Dataset.from_tensor_slices((x, x)).batch(3, drop_remainder=True)


class Scale(tf.keras.layers.Layer):
    def build(self, shape):
        self.scale = self.add_weight(name="scale", shape=(6,), initializer="ones")

    def call(self, rows):
        return rows * self.scale


class Twice(tf.keras.Model):
    def train_step(self, data):
        rows, wanted = data
        with tf.GradientTape() as tape:
            one, other, both = self(rows, training=True)
            parts = tf.reduce_mean(one, 0) + tf.reduce_sum(other, 0) / rows.shape[0]
            loss = tf.reduce_sum(parts) + tf.reduce_mean((both - wanted) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


with ringside.scope():
    given = tf.keras.Input((6,))
    bent = tf.keras.layers.Dense(6, activation="tanh")(given)
    biases = [tf.keras.layers.Dense(6)(rows) for rows in (bent, given)]
    ends = [Scale()(given), Scale()(given), tf.keras.layers.Add()(biases)]
    model = Twice(given, ends)
    model.compile(tf.keras.optimizers.SGD(0.05))
history = ringside.fit(model, data, epochs=2, verbose=0)
results = {"weights": model.get_weights(), **history.history}
