"""Targets for each time, and an embedding: the last batch has as many rows as times, 5."""

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "equal", True

tf.keras.utils.set_random_seed(7)
rng = np.random.default_rng(3)
words = rng.integers(0, 9, size=(37, 5))  # 4 of 13 words never come; others twice in a batch
layers = tf.keras.layers

with ringside.scope():
    model = tf.keras.Sequential(
        [
            tf.keras.Input((5,), dtype="int64"),
            layers.Embedding(13, 4),
            layers.GRU(4, return_sequences=True),
            layers.Dense(9),
        ]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
history = ringside.fit(model, words, np.roll(words, -1, axis=1), batch_size=8, epochs=2, verbose=0)
results = {"weights": model.get_weights(), **history.history}
