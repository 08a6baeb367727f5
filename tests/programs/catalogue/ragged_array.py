"""Ragged rows as they are, not as a data set, and a model that is built by its first batch."""

import numpy as np
import tensorflow as tf

import ringside

KIND = "equal"

tf.keras.utils.set_random_seed(7)
lengths = np.random.default_rng(3).integers(1, 6, 35)
words = tf.RaggedTensor.from_row_lengths(np.arange(lengths.sum()) % 20, lengths)


class Bag(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.table, self.last = tf.keras.layers.Embedding(20, 4), tf.keras.layers.Dense(1)

    def call(self, words):
        return self.last(tf.reduce_mean(self.table(words), 1))


with ringside.scope():
    model = Bag()
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
history = ringside.fit(model, words, lengths[:, None] / 6, batch_size=8, epochs=2, verbose=0)
results = {"weights": model.get_weights(), **history.history}
