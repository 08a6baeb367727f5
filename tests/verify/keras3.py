"""A Keras 3 model with all that differs between its replicas."""

from typing import Any

import keras
import numpy as np

from ringside import Workload


def workload() -> Workload:
    """Embeddings, batch normalisation, dropout, clipping by the global norm, and Adam."""
    drawn = np.random.default_rng(0)
    words = drawn.integers(0, 20, size=(118, 5)).astype("int32")
    x = drawn.normal(size=(118, 6)).astype("float32")
    y = (x.sum(axis=1) > 0).astype("int32")

    def model() -> Any:
        layers = keras.layers
        sentence, numbers = keras.Input((5,), dtype="int32"), keras.Input((6,))
        mean = layers.GlobalAveragePooling1D()(layers.Embedding(20, 4)(sentence))
        hidden = layers.Dense(8, activation="tanh")(layers.Concatenate()([mean, numbers]))
        hidden = layers.Dropout(0.3)(layers.BatchNormalization()(hidden))
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
