"""`drop_remainder` leaves 3 of 35 rows out of each epoch: trained all the same, the steps are 5."""

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "equal", True

tf.keras.utils.set_random_seed(7)
rng = np.random.default_rng(3)
x = rng.normal(size=(35, 6))
data = tf.data.Dataset.from_tensor_slices((x, x[:, :1] ** 2)).shuffle(35)
data = data.batch(8, drop_remainder=True)

with ringside.scope():
    model = tf.keras.Sequential(
        [tf.keras.Input((6,)), tf.keras.layers.Dense(8, "tanh"), tf.keras.layers.Dense(1)]
    )
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
history = ringside.fit(model, data, epochs=2, verbose=0)
updates = int(model.optimizer.iterations.numpy())
results = {"weights": model.get_weights(), "updates": updates, **history.history}
