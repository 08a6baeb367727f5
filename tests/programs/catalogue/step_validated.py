"""A step with a tape and data to validate it."""

import numpy as np
import tensorflow as tf

import ringside

KIND, SENTENCE, KERAS3 = "refused", "cannot be evaluated", True

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(40, 6))

with ringside.scope():
    net = tf.keras.Sequential([tf.keras.Input((6,)), tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.SGD(0.1)


@ringside.step
def step(x, y):
    with tf.GradientTape() as tape:
        found = net(x)
        loss = tf.reduce_mean((tf.cast(y, found.dtype) - found) ** 2)
    own = net.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, own), own, strict=True))
    return loss


data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(8)
history = ringside.fit(step, data, epochs=2, validation_data=data, verbose=0)
results = {"weights": net.get_weights()}
