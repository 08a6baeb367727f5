"""Three parts of unknown rank, as `output_types` alone gives them: nothing may ask their shapes."""

import numpy as np
import tensorflow as tf

import ringside

KIND = "equal"

tf.keras.utils.set_random_seed(7)


class Weighted(tf.keras.Sequential):
    def train_step(self, batch):
        x, y, weight = batch
        with tf.GradientTape() as tape:
            error = tf.reduce_sum((self(x, training=True) - y) ** 2, 1)
            loss = tf.reduce_mean(error * weight)
        self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
        return {"loss": loss}


def rows():
    """37 of them."""
    for number in range(37):
        x = np.sin(number + np.arange(6.0))
        yield x, x[:1] * 2, 1.0 + number % 3


data = tf.data.Dataset.from_generator(rows, output_types=(tf.float64,) * 3).batch(8)

with ringside.scope():
    model = Weighted([tf.keras.layers.Dense(4, "tanh", input_shape=(6,)), tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.SGD(0.1))
ringside.fit(model, data, epochs=2, verbose=0)
results = {"weights": model.get_weights()}
