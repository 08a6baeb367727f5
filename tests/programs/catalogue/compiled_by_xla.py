"""`jit_compile=True`: nothing that the step gets from Ringside may be an operation without XLA."""

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "equal", True

tf.keras.utils.set_random_seed(7)
rng = np.random.default_rng(3)
x, y = rng.normal(size=(37, 6)), rng.integers(0, 3, 37)

with ringside.scope():
    model = tf.keras.Sequential(
        [tf.keras.Input((6,)), tf.keras.layers.Dense(8, "relu"), tf.keras.layers.Dense(3)]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = tf.keras.optimizers.Adam(0.01)
    model.compile(optimizer, loss, metrics=["accuracy"], jit_compile=True)
history = ringside.fit(model, x, y, batch_size=8, epochs=2, verbose=0)
results = {"weights": model.get_weights(), **history.history}
