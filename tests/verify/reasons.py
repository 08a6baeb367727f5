"""Programs of which a certificate must say why they differ: `python reasons.py NAME`."""

import sys
from typing import Any

import numpy as np

import ringside

# isort: split
import tensorflow as tf

NAME = sys.argv[1]
draw = np.random.default_rng(3)
x, y = draw.normal(size=(24, 4)), draw.integers(0, 3, 24)
table = draw.normal(size=(4, 3))
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(4, drop_remainder=True)
if NAME == "memory":
    data = data.map(
        lambda rows, label: {
            "x": tf.cast(rows, tf.keras.backend.floatx()),
            "y": label,
            "table": tf.constant(table, tf.keras.backend.floatx()),
            "scale": tf.constant(2.0, tf.keras.backend.floatx()),
        }
    )


class Looking(tf.keras.Sequential):
    """Attends to a table of as many rows as a batch, and to one number."""

    def train_step(self, data: Any) -> Any:
        """Labels of the rows, from what is near to them in the table."""
        with tf.GradientTape() as tape:
            near = tf.matmul(self(data["x"], training=True), data["table"], transpose_b=True)
            logits = tf.matmul(tf.nn.softmax(near * data["scale"]), data["table"])
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(data["y"], logits)
            loss = tf.reduce_mean(loss)
        self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
        return {"loss": loss}


class Clipping(tf.keras.optimizers.SGD):
    """Clips what it is given, an optimizer of the author's."""

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """Each to a norm of 0.01."""
        pairs = [(tf.clip_by_norm(g, 0.01), v) for g, v in grads_and_vars]
        return super().apply_gradients(pairs, *args, **kwargs)


class Unreduced(tf.keras.Sequential):
    """A loss for each row, and the largest of them."""

    largest = tf.keras.metrics.Mean(name="largest")

    @property
    def metrics(self) -> list[Any]:
        """One."""
        return [self.largest]

    def train_step(self, data: Any) -> Any:
        """Of logits."""
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                data[1], self(data[0], training=True)
            )
        self.optimizer.minimize(losses, self.trainable_variables, tape=tape)
        return {}

    def test_step(self, data: Any) -> Any:
        """Of replicas it is not that of the batch."""
        self.largest.update_state(tf.reduce_max(self(data[0])))
        return {"largest": self.largest.result()}


with ringside.scope():
    layers = [tf.keras.layers.InputLayer((4,)), tf.keras.layers.Dense(3)]
    if NAME == "normalised":
        layers.insert(1, tf.keras.layers.BatchNormalization())
    kinds = {"memory": Looking, "normalised": Unreduced, "evaluated": Unreduced}
    model = kinds.get(NAME, tf.keras.Sequential)(layers)
    optimizer = Clipping(0.1) if NAME == "clipped" else tf.keras.optimizers.SGD(0.1)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, jit_compile=NAME == "by_xla" or None)
held = data if NAME == "evaluated" else None
ringside.fit(model, data, epochs=2, validation_data=held, verbose=0)
