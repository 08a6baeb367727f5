"""Models that name float32 somewhere, as public programs do: none can run in float64."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside_core.keras import tf
from ringside_core.workloads.workload import Workload

Array = NDArray[Any]
layers = tf.keras.layers


class Sampling(tf.keras.layers.Layer):
    """As in a variational autoencoder; `tf.random.normal` draws float32."""

    def call(self, x: Any) -> Any:
        mean, spread = tf.split(x, 2, axis=-1)
        return mean + tf.exp(0.5 * spread) * tf.random.normal(tf.shape(mean))


def sampled() -> Workload:
    """Batch normalisation, and draws in training that are tied to the example."""
    dense, norm = layers.Dense, layers.BatchNormalization
    return _regression("sampled", lambda: [dense(8), norm(), OnlyInTraining(), dense(1)])


class OnlyInTraining(Sampling):
    """Draws in training."""

    def call(self, x: Any, training: bool = False) -> Any:
        mean, _ = tf.split(x, 2, axis=-1)
        return super().call(x) if training else mean


def rotated() -> Workload:
    """Augmented, and its author names float32."""

    def stack() -> list[Any]:
        centre = layers.Lambda(lambda x: x - tf.constant(0.5))
        seen = layers.Conv2D(3, 3, activation="relu")
        return [layers.RandomRotation(0.1), centre, seen, layers.Flatten(), layers.Dense(1)]

    return _regression("rotated", stack, shape=(6, 6, 1))


def cast_in_loss() -> Workload:
    """Only a training shows it: the labels are cast, the predictions are not."""

    def loss(y: Any, made: Any) -> Any:
        return tf.reduce_mean(tf.square(tf.cast(y, tf.float32) - made), axis=-1)

    stack = lambda: [layers.Dense(8, "tanh"), layers.Dense(1)]  # noqa: E731
    return _regression("cast_in_loss", stack, loss=loss)


def _regression(
    name: str, stack: Callable[[], list[Any]], loss: Any = "mse", shape: tuple[int, ...] = (4,)
) -> Workload:
    def model() -> Any:
        return tf.keras.Sequential([layers.Input(shape), *stack()], name=name)

    return _workload(name, model, x=_rows(1, 60, *shape), y=_rows(2, 60, 1), loss=loss)


def _workload(name: str, model: Any, *, x: Array, y: Array, loss: Any = "mse") -> Workload:
    return Workload(
        name=name,
        model=model,
        train=(x, y),
        validation=(x[:13], y[:13]),
        loss=loss,
        optimizer=lambda: tf.keras.optimizers.SGD(0.05, momentum=0.9),
    )


def _rows(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape)
