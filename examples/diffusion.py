"""A diffusion model on images without labels, with a moving average of its weights, after keras.io.

ringside verify examples/diffusion.py
"""

from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import ringside
from ringside import tf

layers = tf.keras.layers


def network() -> Any:
    """(noisy images, variance of the noise) → the noise."""
    noisy_images = tf.keras.Input((8, 8, 1))
    noise_variances = tf.keras.Input((1, 1, 1))
    variances = layers.UpSampling2D(8, interpolation="nearest")(noise_variances)
    x = layers.Concatenate()([noisy_images, variances])
    x = layers.Conv2D(8, 3, padding="same", activation="swish")(x)
    x = layers.Conv2D(1, 3, padding="same", kernel_initializer="zeros")(x)
    return tf.keras.Model([noisy_images, noise_variances], x)


class DiffusionModel(tf.keras.Model):
    """Learns to tell the noise from the image."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network()
        self.ema_network = tf.keras.models.clone_model(self.network)
        self.ema_network.set_weights(self.network.get_weights())

    def compile(self, **arguments: Any) -> None:
        """Make the tracker."""
        super().compile(**arguments)
        self.noise_loss_tracker = tf.keras.metrics.Mean(name="n_loss")

    @property
    def metrics(self) -> list[Any]:
        """What is reset at each epoch."""
        return [self.noise_loss_tracker]

    def train_step(self, images: Any) -> dict[str, Any]:
        """One update of the network, and of the average of its weights."""
        batch_size = tf.shape(images)[0]
        noises = tf.random.normal(shape=(batch_size, 8, 8, 1), dtype=images.dtype)
        times = tf.random.uniform((batch_size, 1, 1, 1), 0.0, 1.0, dtype=images.dtype)
        signal_rates, noise_rates = tf.cos(1.5 * times), tf.sin(1.5 * times)
        noisy_images = signal_rates * images + noise_rates * noises
        with tf.GradientTape() as tape:
            pred_noises = self.network([noisy_images, noise_rates**2], training=True)
            noise_loss = self.loss(noises, pred_noises)
        gradients = tape.gradient(noise_loss, self.network.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.network.trainable_weights, strict=True))
        self.noise_loss_tracker.update_state(noise_loss)
        for weight, ema_weight in zip(self.network.weights, self.ema_network.weights, strict=True):
            ema_weight.assign(0.99 * ema_weight + 0.01 * weight)
        return {m.name: m.result() for m in self.metrics}


images = (load_digits().images[..., None] / 16).astype(np.float32)
with ringside.scope():
    model = DiffusionModel()
    model.compile(
        optimizer=tf.keras.optimizers.Adam(1e-3), loss=tf.keras.losses.MeanAbsoluteError()
    )
ringside.fit(model, images, epochs=3)
