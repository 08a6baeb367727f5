"""A Keras 3 model with all that differs between its replicas."""

from typing import Any

import keras
import numpy as np

from ringside import Workload


class Sentences(keras.layers.Layer):
    """Words and their positions; the table of words is used once more, for all sentences."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = keras.layers.Embedding(20, 4), keras.layers.Embedding(5, 4)

    def call(self, words: Any) -> Any:
        numbers = keras.ops.arange(5)
        return self.words(words) + self.places(numbers) * self.words(numbers + 3)


def sentences() -> Workload:
    """Lookups for each example and for all of them, of which Adam squares the gradients."""
    words = np.random.default_rng(0).integers(0, 20, size=(118, 5)).astype("int32")
    y = (words.sum(axis=1) > 48).astype("int32")

    def model() -> Any:
        layers = keras.layers
        hidden = layers.Flatten()(Sentences()(sentence := keras.Input((5,), dtype="int32")))
        return keras.Model(sentence, layers.Dense(2)(hidden))

    return Workload(
        name="sentences",
        model=model,
        train=(words, y),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=lambda: keras.optimizers.Adam(1e-2),
    )


class Noise(keras.layers.Layer):
    """Adds what it draws without a seed, from the generator that all such draws share."""

    def call(self, x: Any, training: bool = False) -> Any:
        if not training:
            return x
        chosen = keras.random.uniform((keras.ops.shape(x)[0], 1), dtype=x.dtype)
        return x + 0.1 * keras.random.normal(keras.ops.shape(x), dtype=x.dtype) * chosen


def workload() -> Workload:
    """Embeddings, batch normalisation, noise, dropout, clipping by the global norm, and Adam."""
    drawn = np.random.default_rng(0)
    words = drawn.integers(0, 20, size=(118, 5)).astype("int32")
    x = drawn.normal(size=(118, 6)).astype("float32")
    y = (x.sum(axis=1) > 0).astype("int32")

    def model() -> Any:
        layers = keras.layers
        sentence, numbers = keras.Input((5,), dtype="int32"), keras.Input((6,))
        mean = layers.GlobalAveragePooling1D()(layers.Embedding(20, 4)(sentence))
        hidden = layers.Dense(8, activation="tanh")(layers.Concatenate()([mean, numbers]))
        hidden = layers.Dropout(0.3)(Noise()(layers.BatchNormalization()(hidden)))
        return keras.Model([sentence, numbers], layers.Dense(2)(hidden))

    return Workload(
        name="keras3",
        model=model,
        train=((words, x), y),
        validation=((words[:37], x[:37]), y[:37]),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=lambda: keras.optimizers.Adam(1e-2, global_clipnorm=0.1),
        metrics=["accuracy"],
    )
