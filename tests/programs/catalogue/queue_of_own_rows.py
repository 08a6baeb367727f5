"""A queue of keys, written in the step: each replica would fill its own with its own rows."""

import numpy as np
import tensorflow as tf

import ringside

KIND, SENTENCE = "refused", "is written from own rows"

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(35, 6))


class MoCo(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.query, self.key = (
            tf.keras.Sequential([tf.keras.Input((6,)), tf.keras.layers.Dense(4)]) for _ in "qk"
        )
        self.key.set_weights(self.query.get_weights())
        self.key.trainable = False
        start = tf.reshape(tf.sin(tf.cast(tf.range(80), self.dtype)), (20, 4))
        self.queue = tf.Variable(tf.math.l2_normalize(start, axis=1), trainable=False, name="queue")

    def train_step(self, rows):
        rows = tf.cast(rows, self.dtype)
        for k, q in zip(self.key.weights, self.query.weights, strict=True):
            k.assign(0.9 * k + 0.1 * q)
        keys = tf.math.l2_normalize(self.key(rows + 0.1 * tf.cos(5.0 * rows)), axis=1)
        with tf.GradientTape() as tape:
            queries = tf.math.l2_normalize(self.query(rows + 0.1 * tf.sin(9.0 * rows)), axis=1)
            positive = tf.reduce_sum(queries * keys, axis=1, keepdims=True)
            negative = tf.matmul(queries, self.queue, transpose_b=True)
            logits = tf.concat([positive, negative], axis=1) / 0.1
            loss = -tf.reduce_mean(tf.nn.log_softmax(logits)[:, 0])
        own = self.query.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, own), own, strict=True))
        self.queue.assign(tf.concat([keys, self.queue], axis=0)[:20])
        return {"loss": loss}


with ringside.scope():
    model = MoCo()
    model.compile(tf.keras.optimizers.SGD(0.05, momentum=0.9))
ringside.fit(model, x, batch_size=8, epochs=2, verbose=0)
results = {"weights": model.get_weights(), "queue": model.queue.numpy()}
