"""Ragged and sparse rows: cut by their values instead of their rows, inputs meet other labels."""

import numpy as np
import tensorflow as tf

import ringside

KIND = "equal"

tf.keras.utils.set_random_seed(7)
rng = np.random.default_rng(3)
layers = tf.keras.layers
lengths = rng.integers(0, 6, 35)  # rows without a value, too; the last batch has 3 rows
words = tf.RaggedTensor.from_row_lengths(rng.integers(0, 20, lengths.sum()), lengths)
y = (lengths / 6)[:, None]
counts = tf.sparse.from_dense(rng.poisson(0.3, size=(35, 12)).astype(tf.keras.backend.floatx()))

with ringside.scope():
    given = tf.keras.Input((None,), ragged=True, dtype=tf.int64)
    found = layers.Lambda(lambda rows: tf.reduce_sum(rows, 1))(layers.Embedding(20, 4)(given))
    ragged = tf.keras.Model(given, layers.Dense(1)(found))
    ragged.compile(tf.keras.optimizers.Adam(0.01), "mse")
    given = tf.keras.Input((12,), sparse=True)
    sparse = tf.keras.Model(given, layers.Dense(1)(layers.Dense(4, "tanh")(given)))
    sparse.compile(tf.keras.optimizers.Adam(0.01), "mse")
results = {}
for name, model, rows in (("ragged", ragged, words), ("sparse", sparse, counts)):
    data = tf.data.Dataset.from_tensor_slices((rows, y)).shuffle(35).batch(8)
    results[name] = ringside.fit(model, data, epochs=2, verbose=0).history["loss"]
    results[f"{name} weights"] = model.get_weights()
