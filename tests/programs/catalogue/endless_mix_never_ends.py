"""Two endless data sets, mixed by chance: only `steps_per_epoch` says where an epoch ends."""

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "equal", True

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(0).normal(size=(30, 4))
one = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).shuffle(30).repeat()
other = tf.data.Dataset.from_tensor_slices((-x, x[:, :1])).shuffle(30).repeat()
data = tf.data.Dataset.sample_from_datasets([one, other], [0.5, 0.5]).batch(5)

with ringside.scope():
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
history = ringside.fit(model, data, epochs=2, steps_per_epoch=5, verbose=0)
results = {"weights": model.get_weights(), **history.history}
