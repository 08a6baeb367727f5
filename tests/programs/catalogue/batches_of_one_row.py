"""Batches of one row, in static shapes: the replicas without rows would make another graph."""

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "equal", True

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(7, 6))
data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(1, drop_remainder=True)


class Model(tf.keras.Model):
    def train_step(self, data):
        rows, wanted = data
        with tf.GradientTape() as tape:
            made = self(rows, training=True)
            loss = tf.reduce_mean((tf.cast(wanted, made.dtype) - made) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        errors.update_state(wanted, made)
        return {"mse": errors.result()}

    @property
    def metrics(self):
        return [errors]


with ringside.scope():
    errors = tf.keras.metrics.MeanSquaredError(name="mse")
    given = tf.keras.Input((6,))
    model = Model(given, tf.keras.layers.Dense(1)(given))
    model.compile(tf.keras.optimizers.SGD(0.05))
history = ringside.fit(model, data, epochs=2, verbose=0)
results = {"weights": [w for w in model.get_weights() if np.ndim(w)], **history.history}
