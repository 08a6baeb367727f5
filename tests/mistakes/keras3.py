"""A program of Keras 3, for mistakes that are made there too."""

import keras
import numpy as np

from ringside import Workload


def momentum() -> Workload:
    """As in programs.py."""
    x = np.random.default_rng(5).normal(size=(61, 4))
    dense = keras.layers.Dense
    return Workload(
        name="small",
        model=lambda: keras.Sequential([keras.Input((4,)), dense(6, "tanh"), dense(1)]),
        train=(x, np.sin(x.sum(axis=1, keepdims=True))),
        loss="mse",
        optimizer=lambda: keras.optimizers.SGD(0.05, momentum=0.875),
        reference_batch=8,
    )
