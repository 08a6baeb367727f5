"""A variational autoencoder with a train_step of its own, after keras.io/examples/generative/vae.

ringside verify examples/vae.py
"""

from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import ringside
from ringside import tf

layers = tf.keras.layers


class Sampling(tf.keras.layers.Layer):
    """Draws a code from its mean and log variance."""

    def call(self, inputs: Any) -> Any:
        """(mean, log variance) → code."""
        mean, log_var = inputs
        epsilon = tf.random.normal(shape=tf.shape(mean), dtype=mean.dtype)
        return mean + tf.exp(0.5 * log_var) * epsilon


class VAE(tf.keras.Model):
    """Encoder, decoder, and three trackers."""

    def __init__(self) -> None:
        super().__init__()
        image = tf.keras.Input((64,))
        hidden = layers.Dense(32, activation="relu")(image)
        mean, log_var = layers.Dense(2)(hidden), layers.Dense(2)(hidden)
        self.encoder = tf.keras.Model(image, [mean, log_var, Sampling()([mean, log_var])])
        self.decoder = tf.keras.Sequential(
            [
                layers.Dense(32, activation="relu", input_shape=(2,)),
                layers.Dense(64, activation="sigmoid"),
            ]
        )
        self.total_loss_tracker = tf.keras.metrics.Mean(name="loss")
        self.reconstruction_loss_tracker = tf.keras.metrics.Mean(name="reconstruction_loss")
        self.kl_loss_tracker = tf.keras.metrics.Mean(name="kl_loss")

    @property
    def metrics(self) -> list[Any]:
        """What is reset at each epoch."""
        return [self.total_loss_tracker, self.reconstruction_loss_tracker, self.kl_loss_tracker]

    def train_step(self, data: Any) -> dict[str, Any]:
        """One update by a batch of images."""
        with tf.GradientTape() as tape:
            mean, log_var, code = self.encoder(data)
            made = self.decoder(code)
            reconstruction_loss = tf.reduce_mean(
                tf.reduce_sum(tf.keras.backend.binary_crossentropy(data, made), axis=1)
            )
            kl_loss = -0.5 * (1 + log_var - tf.square(mean) - tf.exp(log_var))
            kl_loss = tf.reduce_mean(tf.reduce_sum(kl_loss, axis=1))
            total_loss = reconstruction_loss + kl_loss
        gradients = tape.gradient(total_loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        self.total_loss_tracker.update_state(total_loss)
        self.reconstruction_loss_tracker.update_state(reconstruction_loss)
        self.kl_loss_tracker.update_state(kl_loss)
        return {
            "loss": self.total_loss_tracker.result(),
            "reconstruction_loss": self.reconstruction_loss_tracker.result(),
            "kl_loss": self.kl_loss_tracker.result(),
        }


images = (load_digits().data / 16).astype(np.float32)
with ringside.scope():
    vae = VAE()
    vae.compile(optimizer=tf.keras.optimizers.Adam(1e-3))
ringside.fit(vae, images, epochs=3)
