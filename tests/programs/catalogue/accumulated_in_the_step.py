"""Gradients of 3 batches, the last of 3 rows, are added in the step: each counts its own share."""

import numpy as np
import tensorflow as tf

import ringside

KIND, GRADIENTS = "equal", "tape"

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(35, 6))


class Accumulating(tf.keras.Sequential):
    def prepared(self):
        """With a sum for each variable and the number of batches in it."""
        self.seen = tf.Variable(0, trainable=False)
        self.sums = [
            tf.Variable(tf.zeros_like(v), trainable=False) for v in self.trainable_variables
        ]
        return self

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = self.compiled_loss(data[1], self(data[0], training=True))
        for total, gradient in zip(
            self.sums, tape.gradient(loss, self.trainable_variables), strict=True
        ):
            total.assign_add(gradient / 3)
        self.seen.assign_add(1)
        tf.cond(tf.equal(self.seen % 3, 0), self.update, lambda: None)
        return {m.name: m.result() for m in self.metrics}

    def update(self):
        """Apply the sums, and begin again."""
        self.optimizer.apply_gradients(zip(self.sums, self.trainable_variables, strict=True))
        for total in self.sums:
            total.assign(tf.zeros_like(total))


with ringside.scope():
    layers = [tf.keras.Input((6,)), tf.keras.layers.Dense(4, "tanh"), tf.keras.layers.Dense(1)]
    model = Accumulating(layers).prepared()
    model.compile(tf.keras.optimizers.SGD(0.3), "mse")
history = ringside.fit(model, x, x[:, :1] ** 2, batch_size=8, epochs=2, verbose=0, gradients="tape")
results = {"weights": model.get_weights(), **history.history}
