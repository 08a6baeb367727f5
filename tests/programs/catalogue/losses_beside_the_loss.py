"""Penalties of weights and of activities, and a loss that is a sum: each has its own divisor."""

import numpy as np
import tensorflow as tf

import ringside

# Keras 3 does not divide a penalty of activities by the rows: there it is a sum.
KIND = "equal"

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(46, 6))  # 35 train, 11 are held out
results = {}

for name, arguments, loss in (
    ("weight", {"kernel_regularizer": "l2"}, "mse"),
    ("activity", {"activity_regularizer": "l2"}, "mse"),
    ("sum", {}, tf.keras.losses.MeanSquaredError(reduction="sum")),
):
    with ringside.scope():
        hidden = tf.keras.layers.Dense(8, "tanh", **arguments)
        model = tf.keras.Sequential([tf.keras.Input((6,)), hidden, tf.keras.layers.Dense(1)])
        model.compile(tf.keras.optimizers.SGD(0.02), loss, metrics=["mae"])
    history = ringside.fit(
        model, x, x[:, :1] ** 2, batch_size=8, epochs=2, validation_split=0.23, verbose=0
    )
    results |= {f"{name} weights": model.get_weights()}
    results |= {f"{name} {key}": values for key, values in history.history.items()}
