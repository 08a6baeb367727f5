"""`gradient_accumulation_steps`: applied in a branch, where Keras 3 cannot add under a strategy."""

import numpy as np
import tensorflow as tf

import ringside

KIND, GRADIENTS, KERAS3 = "equal", "tape", "only"

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(35, 6))

with ringside.scope():
    model = tf.keras.Sequential(
        [tf.keras.Input((6,)), tf.keras.layers.Dense(8, "tanh"), tf.keras.layers.Dense(1)]
    )
    optimizer = tf.keras.optimizers.SGD(0.3, momentum=0.9, gradient_accumulation_steps=3)
    model.compile(optimizer, "mse")
history = ringside.fit(model, x, x[:, :1] ** 2, batch_size=8, epochs=2, verbose=0, gradients="tape")
results = {"weights": model.get_weights(), **history.history}
