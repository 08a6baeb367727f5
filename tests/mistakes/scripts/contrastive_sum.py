"""A contrastive loss, summed, in a step that draws: a sum that couples rows."""

from typing import Any

import numpy as np
import tensorflow as tf

import ringside

x = np.random.default_rng(5).normal(size=(61, 8)).astype("f4")
layers = tf.keras.layers


class Contrastive(tf.keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.net = tf.keras.Sequential(
            [layers.Dense(16, "relu", input_shape=(8,)), layers.Dense(6)]
        )

    def call(self, x: Any, training: Any = None) -> Any:
        return self.net(x, training=training)

    def seen(self, x: Any) -> Any:
        noise = tf.random.normal(tf.shape(x), stddev=0.1, dtype=x.dtype)
        return tf.math.l2_normalize(self(x + noise, training=True), 1)

    def train_step(self, x: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = 10 * tf.matmul(self.seen(x), self.seen(x), transpose_b=True)
            own = tf.range(tf.shape(x)[0])
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(own, logits)
            loss = tf.reduce_sum(each)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": tf.reduce_mean(each)}


with ringside.scope():
    model = Contrastive()
    model(x[:1])
    model.compile(tf.keras.optimizers.SGD(0.001))
ringside.fit(model, x, batch_size=8, epochs=2, verbose=0)
