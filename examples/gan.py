"""A GAN: two networks, two optimizers, after keras.io/guides/customizing_what_happens_in_fit.

ringside verify examples/gan.py
"""

from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import ringside
from ringside import tf

layers = tf.keras.layers


class GAN(tf.keras.Model):
    """A discriminator and a generator that are trained in turn."""

    def __init__(self, latent_dim: int = 8) -> None:
        super().__init__()
        self.discriminator = tf.keras.Sequential(
            [layers.Dense(32, input_shape=(64,)), layers.LeakyReLU(0.2), layers.Dense(1)]
        )
        self.generator = tf.keras.Sequential(
            [
                layers.Dense(32, activation="relu", input_shape=(latent_dim,)),
                layers.Dense(64, activation="sigmoid"),
            ]
        )
        self.latent_dim = latent_dim
        self.d_loss_tracker = tf.keras.metrics.Mean(name="d_loss")
        self.g_loss_tracker = tf.keras.metrics.Mean(name="g_loss")

    def compile(self, d_optimizer: Any, g_optimizer: Any, loss_fn: Any) -> None:
        """Take an optimizer for each network."""
        super().compile()
        self.d_optimizer = d_optimizer
        self.g_optimizer = g_optimizer
        self.loss_fn = loss_fn

    @property
    def metrics(self) -> list[Any]:
        """What is reset at each epoch."""
        return [self.d_loss_tracker, self.g_loss_tracker]

    def train_step(self, real_images: Any) -> dict[str, Any]:
        """One update of each network by a batch of images."""
        batch_size = tf.shape(real_images)[0]
        dtype = real_images.dtype
        noise = tf.random.normal((batch_size, self.latent_dim), dtype=dtype)
        combined_images = tf.concat([self.generator(noise), real_images], axis=0)
        labels = tf.concat([tf.ones((batch_size, 1)), tf.zeros((batch_size, 1))], axis=0)
        with tf.GradientTape() as tape:
            d_loss = self.loss_fn(labels, self.discriminator(combined_images))
        grads = tape.gradient(d_loss, self.discriminator.trainable_weights)
        self.d_optimizer.apply_gradients(
            zip(grads, self.discriminator.trainable_weights, strict=True)
        )

        noise = tf.random.normal((batch_size, self.latent_dim), dtype=dtype)
        misleading_labels = tf.zeros((batch_size, 1))
        with tf.GradientTape() as tape:
            g_loss = self.loss_fn(misleading_labels, self.discriminator(self.generator(noise)))
        grads = tape.gradient(g_loss, self.generator.trainable_weights)
        self.g_optimizer.apply_gradients(zip(grads, self.generator.trainable_weights, strict=True))

        self.d_loss_tracker.update_state(d_loss)
        self.g_loss_tracker.update_state(g_loss)
        return {"d_loss": self.d_loss_tracker.result(), "g_loss": self.g_loss_tracker.result()}


images = (load_digits().data / 16).astype(np.float32)
with ringside.scope():
    gan = GAN()
    gan.compile(
        d_optimizer=tf.keras.optimizers.Adam(3e-4),
        g_optimizer=tf.keras.optimizers.Adam(3e-4),
        loss_fn=tf.keras.losses.BinaryCrossentropy(from_logits=True),
    )
ringside.fit(gan, images, batch_size=64, epochs=3)
