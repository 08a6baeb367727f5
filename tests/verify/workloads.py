"""Workloads that cannot be certified: Ringside must say why. At the end, three that can."""

import dataclasses
from typing import Any

import numpy as np

from ringside_core.keras import tf
from ringside_core.workloads.workload import Workload


def _with(*layers: Any, metrics: Any = list) -> Workload:
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(40, 4)), generator.normal(size=(40, 1))
    return Workload(
        name="impossible",
        model=lambda: tf.keras.Sequential(
            [tf.keras.Input((4,)), *(layer() for layer in layers), tf.keras.layers.Dense(1)]
        ),
        train=(x, y),
        validation=(x[:7], y[:7]),
        loss=tf.keras.losses.MeanSquaredError(),
        optimizer=lambda: tf.keras.optimizers.SGD(0.01),
        metrics=metrics,
    )


class BatchMean(tf.keras.layers.Layer):
    """Takes the mean of the batch away: each example's output depends on the others."""

    def call(self, inputs: Any) -> Any:
        """[batch, …] → [batch, …]."""
        return inputs - tf.reduce_mean(inputs, axis=0, keepdims=True)


class Highest(tf.keras.metrics.Metric):
    """The largest output so far: two of them cannot be added up."""

    def __init__(self) -> None:
        super().__init__(name="highest")
        self._highest = self.add_weight(name="highest", initializer="zeros")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Keep the larger."""
        del y_true, sample_weight
        largest = tf.cast(tf.reduce_max(y_pred), self._highest.dtype)
        return self._highest.assign(tf.maximum(self._highest, largest))

    def result(self) -> Any:
        """The largest."""
        return tf.identity(self._highest)


def reads_the_batch() -> Workload:
    """With a layer that reads the batch."""
    return _with(BatchMean)


def running_maximum() -> Workload:
    """With a metric whose state cannot be summed."""
    return _with(metrics=lambda: [Highest()])


def draws_without_a_seed() -> Workload:
    """With a layer that draws random numbers by itself."""
    noise = tf.keras.layers.Lambda
    return _with(lambda: noise(lambda x: x + tf.random.normal(tf.shape(x), dtype=x.dtype)))


def plain() -> Workload:
    """One that can be certified, for the command line; its callback is left out everywhere."""
    slower = tf.keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2)
    return dataclasses.replace(_with(), name="plain", callbacks=[slower])


def random_and_split() -> Workload:
    """One that can be certified, although every update is noisy.

    Dropout; a batch normalisation that sees the slice of a replica; and a bias before it, whose
    gradient is nothing but rounding, which Adam makes as large as any other.
    """
    keras = tf.keras
    layers = (
        lambda: keras.layers.Dense(8),
        keras.layers.BatchNormalization,
        keras.layers.ReLU,
        lambda: keras.layers.Dropout(0.3),
    )
    return dataclasses.replace(_with(*layers), optimizer=lambda: keras.optimizers.Adam(0.01))


class Logistic(tf.keras.layers.Layer):
    """A chaotic map: each of its passes doubles what rounding has made different."""

    def call(self, inputs: Any) -> Any:
        """[batch, …] → [batch, …]."""
        x = tf.sigmoid(inputs)
        for _ in range(12):
            x = 3.9 * x * (1.0 - x)
        return x


def amplifying() -> Workload:
    """In eight updates rounding grows in float64 a million times."""
    slow = lambda: tf.keras.optimizers.SGD(1e-4)  # noqa: E731
    one = _with(lambda: tf.keras.layers.Dense(4), Logistic)
    return dataclasses.replace(one, name="amplifying", optimizer=slow)
