"""One number given to a `Sum`: of its own rows it may be a sum or a mean, which add differently."""

import numpy as np
import tensorflow as tf

import ringside

KIND, SENTENCE, KERAS3 = "refused", "One number that a step gives to a Sum", True

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(37, 6))


class Model(tf.keras.Model):
    def train_step(self, data):
        rows, wanted = data
        with tf.GradientTape() as tape:
            made = self(rows, training=True)
            loss = tf.reduce_mean((tf.cast(wanted, made.dtype) - made) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        seen.update_state(tf.cast(tf.shape(rows)[0], tf.float64))
        return {"seen": seen.result()}

    @property
    def metrics(self):
        return [seen]


with ringside.scope():
    seen = tf.keras.metrics.Sum(name="seen")
    given = tf.keras.Input((6,))
    model = Model(given, tf.keras.layers.Dense(1)(given))
    model.compile(tf.keras.optimizers.SGD(0.05))
history = ringside.fit(model, x, x[:, :1], batch_size=8, epochs=2, verbose=0)
results = {"weights": model.get_weights(), **history.history}
