"""Small programs, each with one thing that a mistake may touch.

Of the 61 rows in batches of 8, an epoch leaves 5 for its last batch; certificates cut the data so
that other short batches come too.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside import Workload
from ringside_core.keras import tf

ROWS, HELD_OUT, FEATURES = 61, 21, 4


def dense() -> Workload:
    """Adam, whose step depends on the number of updates, and dropout."""
    return _workload([_layers().Dropout(0.2)], lambda: tf.keras.optimizers.Adam(0.02))


def momentum() -> Workload:
    """An optimizer that does not scale its updates, and no random numbers."""
    return _workload()


def clipping() -> Workload:
    """Gradients clipped by their common norm, far below what they are."""
    return _workload(optimizer=lambda: tf.keras.optimizers.SGD(0.5, global_clipnorm=0.05))


def weight_decay() -> Workload:
    """Decoupled weight decay, from which the biases are left out."""

    def optimizer() -> Any:
        made = tf.keras.optimizers.AdamW(0.01, weight_decay=0.1)
        made.exclude_from_weight_decay(var_names=["bias"])
        return made

    return _workload(optimizer=optimizer)


def batch_norm() -> Workload:
    """Each replica normalises by the statistics of its own rows."""
    return _workload([_layers().BatchNormalization(momentum=0.7)])


def sync_batch_norm() -> Workload:
    """All replicas normalise by the statistics of the global batch."""
    return _workload([_layers().BatchNormalization(momentum=0.7, synchronized=True)])


def weighted_rows() -> Workload:
    """Rows that count more or less in training."""
    x, y = _rows(5, ROWS)
    return _workload(train=(x, y, np.random.default_rng(6).uniform(0.2, 3.0, ROWS)))


def embedding() -> Workload:
    """Rows of a table: sparse gradients, with the same row several times in a batch."""
    drawn = np.random.default_rng(0)
    x, y = drawn.integers(0, 11, (ROWS, FEATURES)), drawn.normal(size=(ROWS, 1))
    layers = _layers()
    model = lambda: tf.keras.Sequential(  # noqa: E731
        [
            tf.keras.Input((FEATURES,), dtype="int64"),
            layers.Embedding(11, 3),
            layers.Flatten(),
            layers.Dense(1),
        ]
    )
    return _workload(model=model, train=(x, y), validation=(x[:HELD_OUT], y[:HELD_OUT]))


def _layers() -> Any:
    return tf.keras.layers


def _rows(seed: int, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """x [count, FEATURES], y [count, 1]."""
    x = np.random.default_rng(seed).normal(size=(count, FEATURES))
    return x, np.sin(x.sum(axis=1, keepdims=True))


def _workload(between: Any = (), optimizer: Any = None, **others: Any) -> Workload:
    layers = _layers()
    given: dict[str, Any] = {
        "model": lambda: tf.keras.Sequential(
            [tf.keras.Input((FEATURES,)), layers.Dense(6, "tanh"), *between, layers.Dense(1)]
        ),
        "train": _rows(5, ROWS),
        "validation": _rows(7, HELD_OUT),
        "optimizer": optimizer or (lambda: tf.keras.optimizers.SGD(0.05, momentum=0.875)),
    }
    return Workload(
        name="small", loss="mse", metrics=["mae"], reference_batch=8, **{**given, **others}
    )
