"""A script of Keras 3: clipping, embeddings, and a step of its own if it is asked for one."""

import argparse
import json

import keras
import numpy as np
import tensorflow as tf

import ringside

parser = argparse.ArgumentParser()
parser.add_argument("--own-step", action="store_true")
parser.add_argument("--plain", action="store_true", help="Keras' own fit")
parser.add_argument("--save", action="store_true")
asked = parser.parse_args()

keras.config.set_floatx("float64")
keras.utils.set_random_seed(3)
drawn = np.random.default_rng(0)
words = drawn.integers(0, 20, size=(70, 4))
labels = (words.sum(axis=1) > 38).astype("float64")[:, None]


class Sentences(keras.layers.Layer):
    """Words and their positions, which are looked up once for all sentences."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = keras.layers.Embedding(20, 3), keras.layers.Embedding(4, 3)

    def call(self, words: tf.Tensor) -> tf.Tensor:
        return self.words(words) + self.places(keras.ops.arange(4))


with ringside.scope():
    net = keras.Sequential(
        [
            keras.Input((4,), dtype="int64"),
            # A model that is saved must load without this file.
            keras.layers.Embedding(20, 3) if asked.save else Sentences(),
            keras.layers.Flatten(),
            keras.layers.Dense(8, activation="tanh"),
            keras.layers.Dense(1),
        ]
    )
    optimizer = keras.optimizers.Adam(0.01, global_clipnorm=0.05)
    net.compile(optimizer, loss="mse", weighted_metrics=["mae"])


@ringside.step
def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """One update, written out."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(net(x, training=True) - y))
    gradients = tape.gradient(loss, net.trainable_variables)
    optimizer.apply_gradients(zip(gradients, net.trainable_variables, strict=True))
    return loss


how = {"batch_size": 16, "epochs": 2, "verbose": 0}
if asked.plain:
    told = net.fit(words, labels, shuffle=False, **how)
else:
    told = ringside.fit(step if asked.own_step else net, words, labels, shuffle=False, **how)
if ringside.is_chief():
    if asked.save:
        net.save("model.keras")
    sums = [float(np.abs(weight).sum()) for weight in net.get_weights()]
    print(json.dumps({"loss": told.history["loss"][-1], **dict(enumerate(map(float, sums)))}))
