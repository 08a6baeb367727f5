"""DP-SGD: a gradient for each example by `vectorized_map`, clipped; one of them is no batch's."""

import numpy as np
import tensorflow as tf

import ringside

KIND = "equal"

tf.keras.utils.set_random_seed(7)
rng = np.random.default_rng(3)
x, y = rng.normal(size=(37, 6)), rng.integers(0, 3, 37)
cross_entropy = tf.keras.losses.sparse_categorical_crossentropy


class DPModel(tf.keras.Sequential):
    def clipped(self, example):
        """The prediction and the gradients of one."""
        row, label = example
        with tf.GradientTape() as tape:
            found = self(row[None], training=True)
            loss = cross_entropy(label[None], found, from_logits=True)
        gradients = tape.gradient(loss, self.trainable_variables)
        return found[0], tf.clip_by_global_norm(gradients, 0.5)[0]

    def train_step(self, data):
        found, clipped = tf.vectorized_map(self.clipped, data)
        gradients = [tf.reduce_mean(g, axis=0) for g in clipped]
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.compiled_metrics.update_state(data[1], found)
        return {m.name: m.result() for m in self.metrics}


with ringside.scope():
    model = DPModel(
        [tf.keras.Input((6,)), tf.keras.layers.Dense(4, "tanh"), tf.keras.layers.Dense(3)]
    )
    model.compile(tf.keras.optimizers.SGD(0.2), metrics=["accuracy"])
history = ringside.fit(model, x, y, batch_size=8, epochs=2, verbose=0)
results = {"weights": model.get_weights(), **history.history}
