"""A critic that is frozen within the net that was compiled behind it, and then trained itself."""

import numpy as np
import tensorflow as tf

import ringside

KIND = "equal"

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(37, 6))
layers = tf.keras.layers

with ringside.scope():
    critic = tf.keras.Sequential([tf.keras.Input((6,)), layers.Dense(4, "tanh"), layers.Dense(1)])
    critic.compile(tf.keras.optimizers.Adam(0.01), "mse")
    critic.trainable = False
    both = tf.keras.Sequential([tf.keras.Input((6,)), layers.Dense(6), critic])
    both.compile(tf.keras.optimizers.Adam(0.01), "mse")
how = {"batch_size": 8, "epochs": 1, "verbose": 0}
first = ringside.fit(critic, x, x[:, :1] ** 2, **how)
second = ringside.fit(both, x, x[:, :1] ** 2, **how)
results = {"weights": both.get_weights(), **first.history}
results |= {f"second {name}": values for name, values in second.history.items()}
