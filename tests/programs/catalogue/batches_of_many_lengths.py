"""Each batch has another length in time and in rows: none may be cut or padded to another's."""

import tensorflow as tf

import ringside

KIND, KERAS3 = "equal", True

tf.keras.utils.set_random_seed(7)


def batch(numbers):
    """From 1 to 8 rows of as many times as the first number says."""
    rows, times = 1 + numbers[0] % 8, numbers[0]
    x = tf.sin(tf.cast(tf.reshape(tf.range(rows * times * 3), [rows, times, 3]), tf.float64))
    return x, tf.reduce_mean(x, [1, 2])[:, None]


data = tf.data.Dataset.range(1, 38).batch(4).map(batch)

with ringside.scope():
    model = tf.keras.Sequential(
        [tf.keras.Input((None, 3)), tf.keras.layers.GRU(3), tf.keras.layers.Dense(1)]
    )
    model.compile(tf.keras.optimizers.Adam(0.01), "mse")
history = ringside.fit(model, data, epochs=2, verbose=0)
results = {"weights": model.get_weights(), **history.history}
