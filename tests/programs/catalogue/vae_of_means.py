"""A step with its own trackers, whose losses are means: each is one number for own rows."""

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "equal", True

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(37, 6))
layers, Mean = tf.keras.layers, tf.keras.metrics.Mean


class VAE(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder = tf.keras.Sequential([tf.keras.Input((6,)), layers.Dense(4)])
        self.decoder = tf.keras.Sequential([tf.keras.Input((2,)), layers.Dense(6)])
        self.trackers = [Mean(name=name) for name in ("loss", "restored", "kl")]

    def call(self, rows):
        return self.decoder(self.encoder(rows)[:, :2])

    @property
    def metrics(self):
        return self.trackers

    def losses_of(self, rows):
        """Of the whole, of restoring, and the divergence; the noise is a function of the row."""
        mean, log_var = tf.split(self.encoder(rows), 2, axis=1)
        restored = self.decoder(mean + tf.exp(0.5 * log_var) * tf.sin(17.0 * rows[:, :2]))
        error = tf.reduce_mean(tf.reduce_sum((rows - restored) ** 2, axis=1))
        kl = -0.5 * tf.reduce_sum(1 + log_var - mean**2 - tf.exp(log_var), axis=1)
        return error + tf.reduce_mean(kl), error, tf.reduce_mean(kl)

    def train_step(self, rows):
        with tf.GradientTape() as tape:
            values = self.losses_of(rows)
        gradients = tape.gradient(values[0], self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return self.tell(values)

    def test_step(self, rows):
        return self.tell(self.losses_of(rows))

    def tell(self, values):
        """The numbers so far."""
        for tracker, value in zip(self.trackers, values, strict=True):
            tracker.update_state(value)
        return {tracker.name: tracker.result() for tracker in self.trackers}


data = tf.data.Dataset.from_tensor_slices(x).shuffle(37).batch(8)
held = tf.data.Dataset.from_tensor_slices(x[:11]).batch(5)
with ringside.scope():
    model = VAE()
    model.compile(tf.keras.optimizers.Adam(0.01))
history = ringside.fit(model, data, epochs=2, validation_data=held, verbose=0)
results = {"weights": [v.numpy() for v in model.trainable_variables], **history.history}
