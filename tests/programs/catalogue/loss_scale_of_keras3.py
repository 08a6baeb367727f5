"""A loss scale of Keras 3 calls its optimizer in other threads: gradients would be added twice."""

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "equal", "only"

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(33, 6))
results = {}

for name, arguments in (("plain", {}), ("clipped", {"clipnorm": 0.05})):
    with ringside.scope():
        model = tf.keras.Sequential([tf.keras.Input((6,)), tf.keras.layers.Dense(1)])
        inner = tf.keras.optimizers.SGD(0.05, **arguments)
        model.compile(tf.keras.optimizers.LossScaleOptimizer(inner), "mse")
    history = ringside.fit(model, x, x[:, :1] ** 2, batch_size=8, epochs=2, verbose=0)
    results |= {f"{name} weights": model.get_weights(), f"{name} loss": history.history["loss"]}
