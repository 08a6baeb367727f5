"""The step clips what it applies: of own rows, unless gradients are added at the tape."""

from typing import Any

import numpy as np
import tensorflow as tf

import ringside

tf.keras.utils.set_random_seed(5)
x = np.random.default_rng(5).normal(size=(61, 4))


class Clipped(tf.keras.Sequential):
    """Clips by the norm of all gradients."""

    def train_step(self, data: Any) -> Any:
        """Keras' own, but for that."""
        rows, labels = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(rows) - labels) ** 2)
        found, _ = tf.clip_by_global_norm(tape.gradient(loss, self.trainable_variables), 0.3)
        self.optimizer.apply_gradients(zip(found, self.trainable_variables, strict=True))
        return {"loss": loss}


with ringside.scope():
    model = Clipped([tf.keras.layers.Dense(1, input_shape=(4,))])
    model.compile(tf.keras.optimizers.SGD(0.1))
ringside.fit(model, x, x[:, :1], batch_size=8, epochs=2)
