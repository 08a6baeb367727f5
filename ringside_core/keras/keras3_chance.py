"""The random numbers of Keras 3: seeds, the generators of layers, and who answers their draws."""

import contextlib
import functools
import inspect
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras.src.backend.tensorflow import random as random_module
from keras.src.random import seed_generator

from ringside_core.keras.tensorflow import AS_SHIPPED, global_seed, is_seeded, tf
from ringside_core.keras.variables import raw

_NUMBERS = "_ringside_numbers"  # on a SeedGenerator: what answers its draws


class _Generator:
    """What Keras draws by the random generators of one layer."""

    def __init__(self, seeds: Sequence[Any]) -> None:
        self._seed = seeds[0]

    def dropout(self, inputs: Any, rate: Any, noise_shape: Any = None) -> Any:
        return _drawn["dropout"](inputs, rate, noise_shape, seed=self._seed)

    def random_uniform(
        self, shape: Any, minval: Any = 0.0, maxval: Any = None, dtype: Any = None
    ) -> Any:
        high = 1.0 if maxval is None else maxval
        return _drawn["uniform"](shape, minval, high, dtype, seed=self._seed)

    def random_normal(
        self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = None
    ) -> Any:
        return _drawn["normal"](shape, mean, stddev, dtype, seed=self._seed)

    def truncated_normal(
        self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = None
    ) -> Any:
        return _drawn["truncated_normal"](shape, mean, stddev, dtype, seed=self._seed)


def _seeds_of(layer: Any) -> list[Any]:
    held = [*layer._seed_generators, *vars(layer).values()]
    found = {id(one): one for one in held if isinstance(one, keras.random.SeedGenerator)}
    return list(found.values())


def chance_of(model: Any) -> list[Any]:
    """The variables that say how the random numbers of a model's layers go on."""
    layers = {id(layer): layer for layer in model._flatten_layers()}.values()
    seeds = {id(one): one for layer in layers for one in _seeds_of(layer)}
    return [raw(one.state) for one in seeds.values()]


def generator_of(layer: Any) -> Any:
    """What a layer draws random numbers from; None: it draws none."""
    seeds = _seeds_of(layer)
    return (getattr(seeds[0], _NUMBERS, None) or _Generator(seeds)) if seeds else None


def set_generator(layer: Any, generator: Any) -> None:
    """Let a layer draw from another generator, with the methods of the one that it has."""
    for seed in _seeds_of(layer):
        vars(seed)[_NUMBERS] = None if isinstance(generator, _Generator) else generator


def _answered(name: str, upstream: Any) -> Any:
    @functools.wraps(upstream)
    def drawn(*args: Any, seed: Any = None, **kwargs: Any) -> Any:
        numbers = getattr(seed, _NUMBERS, None)
        if seed is None and _unseeded:
            given = inspect.signature(upstream).bind(*args, **kwargs).arguments
            shape = tf.shape(given["inputs"]) if name == "dropout" else given["shape"]
            numbers = _unseeded[-1](shape)
        if numbers is None:
            return upstream(*args, seed=seed, **kwargs)
        if name == "dropout":
            args, kwargs = _with_whole_shape(*args, **kwargs), {}
        return getattr(numbers, _METHODS[name])(*args, **kwargs)

    return drawn


def let_unseeded_be_answered(numbers: Callable[[Any], Any]) -> None:
    """From now on, let what draws without a seed be answered as a layer's generator would.

    Args:
        numbers: shape → what answers (see `set_generator`), or None: Keras draws.
    """
    _unseeded[:] = [numbers]


_unseeded: list[Callable[[Any], Any]] = []


def let_seeds_be_answered(seed: Callable[[Any], Any]) -> None:
    """From now on, ask for the seed [at least 2] that a generator is to give; None: its own.

    Args:
        seed: generator → seed.
    """
    _seeds[:] = [seed]


def answered_seed(generator: Any) -> Any:
    """The seed that a generator is told to give now; None: its own."""
    seed = _seeds[-1](generator) if _seeds else None
    return None if seed is None else tf.cast(seed[:2], generator.state.dtype)


def _next_seed(generator: Any, ordered: bool = True) -> Any:
    seed = answered_seed(generator)
    return _upstream_next(generator, ordered) if seed is None else seed


_seeds: list[Callable[[Any], Any]] = []
_upstream_next = seed_generator.SeedGenerator.next
seed_generator.SeedGenerator.next = _next_seed


def _with_whole_shape(inputs: Any, rate: Any, noise_shape: Any = None) -> tuple[Any, ...]:
    return inputs, rate, random_module._get_concrete_noise_shape(inputs, noise_shape)


_METHODS = {
    "dropout": "dropout",
    "uniform": "random_uniform",
    "normal": "random_normal",
    "truncated_normal": "truncated_normal",
}
_drawn = {name: getattr(random_module, name) for name in _METHODS}
for _name, _function in _drawn.items():
    setattr(random_module, _name, _answered(_name, _function))


def count_draws(model: Any, seed: int, replica: Any) -> None:
    """Keras 3 counts draws by itself (`chance_of`)."""
    del model, seed, replica


def draw_as_before(model: Any) -> None:
    """Nothing was changed."""
    del model


def draw_by_rank(model: Any, rank: int) -> None:
    """Let each rank draw from a stream of its own."""
    del model
    if not AS_SHIPPED:
        from ringside_core.keras import keras3_changes

        keras3_changes.draw_by_rank(rank)


def make_shared_generator() -> None:
    """Make what layers and functions without a seed draw from, in the current scope.

    Keras makes one for each thread at its first draw: in the graph of a replica, where it could not
    be used again.
    """
    with same_chance():
        _shared[:] = [_upstream_generator()]


def _generator_of_all_threads() -> Any:
    return _shared[0] if _shared else _upstream_generator()


_shared: list[Any] = []
_upstream_generator = seed_generator.global_seed_generator
if not AS_SHIPPED:
    seed_generator.global_seed_generator = _generator_of_all_threads


def seed_weights(seed: int, *, also_if_seeded: bool) -> None:
    """Seed the initial weights, which follow Python's random numbers, and TensorFlow's draws.

    Args:
        seed: of the weights.
        also_if_seeded: whether a seed that the author has set is overridden.
    """
    if also_if_seeded or not is_seeded():
        random.seed(seed)
        tf.random.set_seed(seed)


@contextlib.contextmanager
def same_chance() -> Iterator[None]:
    """After this block, everything that draws goes on as if it had not been."""
    python, numpy, seed = random.getstate(), np.random.get_state(), global_seed()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        tf.random.set_seed(seed)
