"""The random numbers of legacy Keras' layers, as a function of seed, layer, draw and replica.

Keras draws them by operations whose state no checkpoint can hold: a training that went on would
drop the same units again. Here each layer counts its draws in a variable, which is kept.
"""

import zlib
from collections.abc import Callable
from typing import Any

from tf_keras.src.backend import RandomGenerator, floatx

from ringside_core.keras.tensorflow import tf

# Streams of two seeds do not meet: TensorFlow scrambles the pair of numbers.
_REPLICAS = 1 << 20


class CountedRandom(RandomGenerator):  # type: ignore[misc]
    """Keras' generator of one layer, whose draws are numbered.

    Attributes:
        drawn: variable; how often each replica has drawn.
        upstream: Keras' own.
    """

    def __init__(
        self, upstream: RandomGenerator, seed: int, layer: str, replica: Callable[[], Any]
    ) -> None:
        """Count from 0, in the scope of the strategy.

        Args:
            upstream: what the layer has.
            seed: of the run.
            layer: its place in the model, the same in every copy.
            replica: number of the replica that draws.
        """
        super().__init__(upstream._seed, upstream._rng_type)
        self.upstream, self._replica = upstream, replica
        self._key = zlib.crc32(f"{seed} {layer} {upstream._seed}".encode()) * _REPLICAS
        self.drawn = tf.Variable(
            0,
            trainable=False,
            dtype=tf.int64,
            name="ringside_drawn",
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def _next(self) -> Any:
        self.drawn.assign_add(1)
        replica = tf.cast(self._replica(), tf.int64)
        return tf.stack([self._key + replica, self.drawn.read_value()])

    def random_normal(
        self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = None, nonce: Any = None
    ) -> Any:
        """As Keras' own."""
        del nonce  # of stateless generators, which stay as they are
        seed, dtype = self._next(), dtype or floatx()
        return tf.random.stateless_normal(shape, seed, mean, stddev, dtype)

    def random_uniform(
        self,
        shape: Any,
        minval: Any = 0.0,
        maxval: Any = None,
        dtype: Any = None,
        nonce: Any = None,
    ) -> Any:
        """As Keras' own."""
        del nonce
        seed, dtype = self._next(), dtype or floatx()
        maxval = 1.0 if maxval is None else maxval
        return tf.random.stateless_uniform(shape, seed, minval, maxval, dtype)

    def truncated_normal(
        self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = None, nonce: Any = None
    ) -> Any:
        """As Keras' own."""
        del nonce
        seed, dtype = self._next(), dtype or floatx()
        return tf.random.stateless_truncated_normal(shape, seed, mean, stddev, dtype)

    def dropout(self, inputs: Any, rate: Any, noise_shape: Any = None) -> Any:
        """As Keras' own."""
        return tf.nn.experimental.stateless_dropout(
            inputs, rate, seed=self._next(), noise_shape=noise_shape
        )


def _layers(model: Any) -> list[Any]:
    return list({id(layer): layer for layer in model._flatten_layers()}.values())


def count_draws(model: Any, seed: int, replica: Callable[[], Any]) -> None:
    """Let each layer of a built model that draws, as Keras makes it, count its draws.

    Args:
        model: in the scope of its strategy.
        seed: of the run.
        replica: called in a replica's step; its number.
    """
    for place, layer in enumerate(_layers(model)):
        upstream: Any = getattr(layer, "_random_generator", None)
        if type(upstream) is RandomGenerator and upstream._rng_type == upstream.RNG_LEGACY_STATEFUL:
            # Not by the layer's own attribute, which would become a part of its checkpoints.
            vars(layer)["_random_generator"] = CountedRandom(upstream, seed, str(place), replica)


def draw_as_before(model: Any) -> None:
    """Give the layers of a model back what `count_draws` has taken."""
    for layer in _layers(model):
        counted = getattr(layer, "_random_generator", None)
        if isinstance(counted, CountedRandom):
            vars(layer)["_random_generator"] = counted.upstream


def chance_of(model: Any) -> list[Any]:
    """The variables that say how the random numbers of a model's layers go on."""
    held = [getattr(layer, "_random_generator", None) for layer in _layers(model)]
    return [one.drawn for one in held if isinstance(one, CountedRandom)]
