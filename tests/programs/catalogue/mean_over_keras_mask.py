"""Keras' own mask: a loss is a mean over the steps of time that are not padded."""

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "equal", True

tf.keras.utils.set_random_seed(7)
rng = np.random.default_rng(3)
lengths = rng.integers(1, 8, 37)
words = rng.integers(1, 9, (37, 7)) * (np.arange(7) < lengths[:, None])
layers = tf.keras.layers

with ringside.scope():
    model = tf.keras.Sequential(
        [
            tf.keras.Input((7,)),
            layers.Embedding(9, 4, mask_zero=True),
            layers.LSTM(5, return_sequences=True),
            layers.Dense(3, "softmax"),
        ]
    )
    model.compile(
        tf.keras.optimizers.SGD(0.5), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
history = ringside.fit(model, words, words % 3, batch_size=8, epochs=2, verbose=0)
results = {"weights": model.get_weights(), **history.history}
