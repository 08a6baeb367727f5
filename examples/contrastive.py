"""Contrastive learning: each image is compared with all others of the global batch, after SimCLR.

python examples/contrastive.py
ringside verify examples/contrastive.py
"""

from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import ringside
from ringside import tf

layers = tf.keras.layers
images = (load_digits().data / 16).astype(np.float32)


class Contrastive(tf.keras.Model):
    """An encoder, and a head that only training uses."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = tf.keras.Sequential(
            [
                layers.Dense(64, use_bias=False, input_shape=(64,)),
                layers.LayerNormalization(),
                layers.ReLU(),
                layers.Dense(32),
            ]
        )
        self.head = tf.keras.Sequential([layers.Dense(16, input_shape=(32,))])
        self.loss_tracker = tf.keras.metrics.Mean(name="loss")

    @property
    def metrics(self) -> list[Any]:
        """What is reset at each epoch."""
        return [self.loss_tracker]

    def view(self, x: Any) -> Any:
        """A noisy copy of each image, encoded."""
        noise = tf.random.normal(tf.shape(x), stddev=0.2, dtype=x.dtype)
        encoded = self.head(self.encoder(x + noise, training=True))
        return tf.math.l2_normalize(encoded, axis=1)

    def train_step(self, x: Any) -> dict[str, Any]:
        """One update: the two views of an image belong together."""
        with tf.GradientTape() as tape:
            one, other = ringside.gather(self.view(x)), ringside.gather(self.view(x))
            scores = tf.matmul(one, other, transpose_b=True) / 0.1
            own = tf.range(tf.shape(one)[0])
            loss = tf.reduce_mean(
                tf.keras.losses.sparse_categorical_crossentropy(own, scores, from_logits=True)
            )
        variables = self.trainable_variables
        gradients = tape.gradient(loss, variables)
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}


with ringside.scope():
    model = Contrastive()
    model.compile(optimizer=tf.keras.optimizers.Adam(1e-3))

ringside.fit(model, images, batch_size=64, epochs=5)
