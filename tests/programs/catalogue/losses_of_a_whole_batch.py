"""Losses over a whole batch: pairs of rows, a mean over a mask, Dice; of own rows they differ."""

import numpy as np
import tensorflow as tf

import ringside

KIND = "coupled"

tf.keras.utils.set_random_seed(7)
rng = np.random.default_rng(3)
x, y = rng.normal(size=(35, 6)), rng.integers(0, 2, (35, 1)).astype(tf.keras.backend.floatx())


def triplets(y_true, y_pred):
    """The farthest of the same kind against the nearest of another, for each row."""
    far = tf.reduce_sum((y_pred[:, None] - y_pred[None]) ** 2, axis=2)
    same = tf.equal(y_true, tf.transpose(y_true))
    positive = tf.reduce_max(tf.where(same, far, tf.zeros_like(far)), axis=1)
    negative = tf.reduce_min(tf.where(same, far + 1e3, far), axis=1)
    return tf.reduce_mean(tf.nn.softplus(positive - negative))


def masked(y_true, y_pred):
    """Mean over the rows that count."""
    return tf.reduce_sum(y_true * (y_pred - 1) ** 2) / (tf.reduce_sum(y_true) + 1e-7)


def dice(y_true, y_pred):
    """Overlap of the whole batch."""
    found = tf.sigmoid(y_pred)
    both = tf.reduce_sum(y_true * found)
    return 1 - (2 * both + 1) / (tf.reduce_sum(y_true) + tf.reduce_sum(found) + 1)


results = {}
for loss in (triplets, masked, dice):
    with ringside.scope():
        model = tf.keras.Sequential(
            [tf.keras.Input((6,)), tf.keras.layers.Dense(4, "tanh"), tf.keras.layers.Dense(1)]
        )
        model.compile(tf.keras.optimizers.Adam(0.01), loss)
    history = ringside.fit(model, x, y, batch_size=8, epochs=2, verbose=0)
    results |= {
        f"{loss.__name__} weights": model.get_weights(),
        loss.__name__: history.history["loss"],
    }
