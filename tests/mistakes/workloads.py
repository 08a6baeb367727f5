"""Small workloads, each with one thing that a mistake may touch.

All numbers come from NumPy's generators. Of the 300 examples, epochs of 48 leave 12 for the last
batch; certificates cut the data so that other short batches come too.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ringside_core.keras import tf
from ringside_core.workloads.workload import Workload

EXAMPLES, HELD_OUT, FEATURES, CLASSES = 300, 90, 6, 3


def dense() -> Workload:
    """Two dense layers; an optimizer with one slot for each weight."""
    return _workload("dense", [])


def adam() -> Workload:
    """An optimizer whose step depends on the number of updates made."""
    return _workload("adam", [], lambda: tf.keras.optimizers.Adam(0.01))


def weight_decay() -> Workload:
    """Decoupled weight decay, from which the biases are left out."""

    def optimizer() -> Any:
        made = tf.keras.optimizers.AdamW(0.01, weight_decay=0.1)
        made.exclude_from_weight_decay(var_names=["bias"])
        return made

    return _workload("weight_decay", [], optimizer)


def clipping() -> Workload:
    """Gradients clipped by their common norm, far below what they are."""
    return _workload("clipping", [], lambda: tf.keras.optimizers.SGD(0.5, global_clipnorm=0.05))


def dropout() -> Workload:
    """A layer that draws random numbers."""
    return _workload("dropout", [lambda: tf.keras.layers.Dropout(0.4)])


def batch_norm() -> Workload:
    """Each replica normalises by the statistics of its own rows."""
    return _workload("batch_norm", [lambda: tf.keras.layers.BatchNormalization(momentum=0.7)])


def sync_batch_norm() -> Workload:
    """All replicas normalise by the statistics of the global batch."""
    norm = tf.keras.layers.BatchNormalization
    return _workload("sync_batch_norm", [lambda: norm(momentum=0.7, synchronized=True)])


def class_weights() -> Workload:
    """Classes that count more or less in training."""
    return _workload("class_weights", [], class_weight={0: 0.5, 1: 1.0, 2: 3.0})


def embedding() -> Workload:
    """Rows of a table: sparse gradients, with the same row several times in a batch."""
    layers = tf.keras.layers
    between = [lambda: layers.Embedding(11, 3), layers.Flatten, lambda: layers.Dense(CLASSES)]
    generator = np.random.default_rng(0)
    x = generator.integers(0, 11, (EXAMPLES, FEATURES))
    y = generator.integers(0, CLASSES, EXAMPLES)

    def model() -> Any:
        made = [make() for make in between]
        return tf.keras.Sequential([tf.keras.Input((FEATURES,), dtype="int64"), *made])

    return _workload("embedding", [], model=model, train=(x, y), validation=(x[:90], y[:90]))


def _data(seed: int, count: int) -> Any:
    """x [count, FEATURES]; y [count], the classes of a fixed function of x with noise."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(count, FEATURES))
    pull = np.random.default_rng(7).normal(size=(FEATURES, CLASSES))
    return x, np.argmax(x @ pull + generator.normal(size=(count, CLASSES)), axis=1)


def _workload(
    name: str,
    between: list[Callable[[], Any]],
    optimizer: Callable[[], Any] | None = None,
    **others: Any,
) -> Workload:
    def model() -> Any:
        layers = tf.keras.layers
        inner = [make() for make in between]
        first = [tf.keras.Input((FEATURES,)), layers.Dense(8, "tanh")]
        return tf.keras.Sequential([*first, *inner, layers.Dense(CLASSES)])

    fields: dict[str, Any] = {
        "model": model,
        "train": _data(0, EXAMPLES),
        "validation": _data(1, HELD_OUT),
        "loss": tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        # Not one that scales its updates, such as Adam: it would hide doubled gradients.
        "optimizer": optimizer or (lambda: tf.keras.optimizers.SGD(0.05, momentum=0.875)),
        "metrics": lambda: [tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        "reference_batch": 24,
    }
    return Workload(name=name, **{**fields, **others})
