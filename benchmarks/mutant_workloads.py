"""Small workloads for `mutants.py`: each holds one thing that a fault may touch.

1,100 examples in batches of 48 leave 44 for the last one: of two replicas the second gets 20 of 24.
All numbers come from NumPy's generators.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ringside_core.keras import tf
from ringside_core.workloads.source import StreamSource
from ringside_core.workloads.workload import Workload

EXAMPLES, HELD_OUT = 1100, 90
FEATURES, CLASSES, PARTS = 6, 3, 4


def dense() -> Workload:
    """Two dense layers, plain SGD."""
    return _workload("dense", [])


def momentum() -> Workload:
    """An optimizer with one slot for each weight."""
    return _workload("momentum", [], lambda: tf.keras.optimizers.SGD(0.05, momentum=0.9))


def adam() -> Workload:
    """An optimizer whose step depends on the number of updates made."""
    return _workload("adam", [], lambda: tf.keras.optimizers.Adam(0.01))


def only_in_float32() -> Workload:
    """Names float32, as many programs do, and so cannot run in float64; a slot for each weight.

    Its moving variance changes a thousand times as much as its kernels.
    """
    layers = tf.keras.layers
    scaled = lambda: layers.Lambda(lambda x: x * tf.constant(100.0, tf.float32))  # noqa: E731
    norm = lambda: layers.BatchNormalization(momentum=0.7)  # noqa: E731
    return _workload("only_in_float32", [scaled, norm], lambda: tf.keras.optimizers.SGD(0.05, 0.9))


def schedule() -> Workload:
    """A learning rate that falls to a half in twelve updates."""

    def optimizer() -> Any:
        rate = tf.keras.optimizers.schedules.ExponentialDecay(0.1, 12, 0.5)
        return tf.keras.optimizers.SGD(rate)

    return _workload("schedule", [], optimizer)


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
    """Each replica normalises by the statistics of its own slice."""
    return _workload("batch_norm", [lambda: tf.keras.layers.BatchNormalization(momentum=0.7)])


def sync_batch_norm() -> Workload:
    """All replicas normalise by the statistics of the global batch."""
    norm = tf.keras.layers.BatchNormalization
    return _workload("sync_batch_norm", [lambda: norm(momentum=0.7, synchronized=True)])


def embedding() -> Workload:
    """Rows of a table: sparse gradients, with the same row several times in a batch."""
    layers = tf.keras.layers

    def model() -> Any:
        return tf.keras.Sequential(
            [
                layers.Embedding(11, 3, input_length=FEATURES),
                layers.Flatten(),
                layers.Dense(CLASSES),
            ]
        )

    def data(seed: int, count: int) -> Any:
        generator = np.random.default_rng(seed)
        x = generator.integers(0, 11, (count, FEATURES))
        return x, generator.integers(0, CLASSES, count)

    return Workload(
        name="embedding",
        model=model,
        train=data(0, EXAMPLES),
        validation=data(1, HELD_OUT),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=lambda: tf.keras.optimizers.SGD(0.1),
        metrics=lambda: [tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
    )


def class_weights() -> Workload:
    """Classes that count more or less in training."""
    return _workload("class_weights", [], class_weight={0: 0.5, 1: 1.0, 2: 3.0})


def stream() -> Workload:
    """Elements that are read from four parts, as from files; a cache holds them on demand."""
    x, y = _data(0, EXAMPLES)
    ends = np.linspace(0, EXAMPLES, PARTS + 1).astype(int)
    names = tuple(f"part-{number}" for number in range(PARTS))

    def read(part: Any) -> Any:
        number = tf.argmax(tf.equal(tf.constant(names), part))
        begin, end = (tf.gather(tf.constant(ends), number + one) for one in (0, 1))
        return tf.data.Dataset.range(begin, end)

    source = StreamSource(
        parts=names,
        read=read,
        lengths=tuple(np.diff(ends).tolist()),
        decode=lambda number: (tf.gather(x, number), tf.gather(y, number)),
    )
    return _workload("stream", [], train=source)


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
        return tf.keras.Sequential(
            [
                tf.keras.Input((FEATURES,)),
                layers.Dense(8, "tanh"),
                *[make() for make in between],
                layers.Dense(CLASSES),
            ]
        )

    return Workload(
        name=name,
        model=model,
        validation=_data(1, HELD_OUT),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=optimizer or (lambda: tf.keras.optimizers.SGD(0.1)),
        metrics=lambda: [tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        reference_batch=24,
        **{"train": _data(0, EXAMPLES), **others},
    )
