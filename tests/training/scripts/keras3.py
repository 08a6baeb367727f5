"""A script of Keras 3: clipping, embeddings, and a loss of one number for the batch.

A sentence is as long as a batch, and has a label for each word. `--save` saves the model.
"""

import json
import sys

import keras
import numpy as np
import tensorflow as tf

import ringside

saves = sys.argv[1:] == ["--save"]
keras.config.set_floatx("float64")
keras.utils.set_random_seed(3)
drawn = np.random.default_rng(0)
words = drawn.integers(0, 20, size=(70, 16))
labels = (words > 9).astype("float64")[..., None]


def error(y: tf.Tensor, made: tf.Tensor) -> tf.Tensor:
    """A loss and a metric of one number for the batch."""
    return tf.reduce_mean(tf.abs(y - made))


with ringside.scope():
    net = keras.Sequential(
        [
            keras.Input((16,), dtype="int64"),
            keras.layers.Embedding(20, 3),
            keras.layers.Dense(8, activation="tanh"),
            keras.layers.Dense(1),
        ]
    )
    optimizer = keras.optimizers.Adam(0.01, global_clipnorm=0.05)
    # A model that is saved must load without this file.
    loss, metrics = ("mse", ["mae"]) if saves else (error, ["mae", error])
    net.compile(optimizer, loss=loss, metrics=metrics)
said = ringside.fit(
    net,
    words,
    labels,
    batch_size=16,
    epochs=2,
    shuffle=False,
    verbose=0,
    validation_data=(words[:32], labels[:32]),  # Keras counts a short batch as a whole one
)
if ringside.is_chief():
    if saves:
        net.save("model.keras")
    sums = [float(np.abs(weight).sum()) for weight in net.get_weights()]
    last = {name: values[-1] for name, values in said.history.items()}
    print(json.dumps({**last, **dict(enumerate(map(float, sums)))}))
