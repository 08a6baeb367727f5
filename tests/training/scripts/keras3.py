"""A script of Keras 3: clipping, embeddings, and a step of its own if it is asked for one.

A sentence is as long as a batch, and has a label for each word: weights of examples must not be
laid over the words.
"""

import argparse
import json
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import ringside

parser = argparse.ArgumentParser()
parser.add_argument("--own-step", action="store_true")
parser.add_argument("--own-loss", action="store_true", help="compute_loss, in Keras' own step")
parser.add_argument("--plain", action="store_true", help="Keras' own fit")
parser.add_argument("--save", action="store_true")
asked = parser.parse_args()

keras.config.set_floatx("float64")
keras.utils.set_random_seed(3)
drawn = np.random.default_rng(0)
words = drawn.integers(0, 20, size=(70, 16))
labels = (words > 9).astype("float64")[..., None]


def error(y: tf.Tensor, made: tf.Tensor) -> tf.Tensor:
    """A loss and a metric of one number for the batch."""
    return tf.reduce_mean(tf.abs(y - made))


class Sentences(keras.layers.Layer):
    """Words and their positions, the same in all sentences."""

    def __init__(self) -> None:
        super().__init__()
        self.words = keras.layers.Embedding(20, 3)
        # Not an Embedding: a norm of slices is taken before those of one row are added.
        self.places = self.add_weight(shape=(16, 3), initializer="uniform")

    def call(self, words: tf.Tensor) -> tf.Tensor:
        return self.words(words) + self.places


class Distiller(keras.Model):
    """As keras.io writes it: the loss is of the student's outputs and of a teacher's."""

    def __init__(self, student: keras.Model, teacher: keras.Model) -> None:
        super().__init__()
        self.student, self.teacher = student, teacher

    def compute_loss(
        self,
        x: tf.Tensor = None,
        y: tf.Tensor = None,
        y_pred: tf.Tensor = None,
        sample_weight: tf.Tensor = None,
        allow_empty: bool = False,
    ) -> tf.Tensor:
        taught = self.teacher(x, training=False)
        wrong = keras.losses.MeanSquaredError()
        return 0.3 * wrong(y, y_pred) + 0.7 * wrong(taught, y_pred)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.student(x)


with ringside.scope():
    net = keras.Sequential(
        [
            # A step function's models may be built by their first call.
            *([] if asked.own_step else [keras.Input((16,), dtype="int64")]),
            # A model that is saved must load without this file.
            keras.layers.Embedding(20, 3) if asked.save else Sentences(),
            keras.layers.Dense(8, activation="tanh"),
            keras.layers.Dense(1),
        ]
    )
    optimizer = keras.optimizers.Adam(0.01, global_clipnorm=0.05)
    if asked.own_loss:
        net = Distiller(net, keras.Sequential([keras.Input((16,)), Sentences()]))
        net.compile(optimizer, metrics=["mae"])
    elif asked.save:
        net.compile(optimizer, loss="mse", metrics=["mae"])
    else:
        net.compile(optimizer, loss=error, metrics=["mae", error])


@ringside.step
def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """One update, written out."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(net(x, training=True) - y))
    gradients = tape.gradient(loss, net.trainable_variables)
    optimizer.apply_gradients(zip(gradients, net.trainable_variables, strict=True))
    return loss


how: dict[str, Any] = {"batch_size": 16, "epochs": 2, "verbose": 0}
if not asked.own_step:
    how["validation_data"] = (words[:32], labels[:32])  # Keras counts a short batch as a whole one
if asked.plain:
    said = net.fit(words, labels, shuffle=False, **how)
else:
    said = ringside.fit(step if asked.own_step else net, words, labels, shuffle=False, **how)
if ringside.is_chief():
    if asked.save:
        net.save("model.keras")
    sums = [float(np.abs(weight).sum()) for weight in net.get_weights()]
    last = {name: values[-1] for name, values in said.history.items()}
    print(json.dumps({**last, **dict(enumerate(map(float, sums)))}))
