"""The random numbers of a step: each replica's own in training, those of rows for certificates.

In training replica r adds something of r to the seeds of what it draws; replica 0 draws what plain
Keras would. For certificates (`Draws`) the numbers of the whole global batch follow from a seed and
a count of draws, by stateless operations, and a replica takes its rows: so a serial run, plain
Keras and every arm see the same masks.

Changed here, for TensorFlow 2.21, only within a step (`drawing`): `random_seed.get_seed`,
`tf.random.Generator._prepare_key_counter`, the operations that draw uniform and normal numbers, and
Keras 3's `SeedGenerator.next`.
"""

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tensorflow.python.framework import random_seed, tensor_util
from tensorflow.python.ops import (
    gen_random_ops,
    gen_stateless_random_ops,
    gen_stateless_random_ops_v2,
)
from tensorflow.python.ops.random_ops_util import get_key_counter_alg

from ringside_core.keras.tensorflow import VERSION, tf
from ringside_core.specs import RefusalError

_here = threading.local()  # a strategy traces each replica in a thread of its own
_STREAM = 1_000_003  # between the seeds of two replicas


class Draws:
    """The random numbers of a process' steps, as a function of a seed and of how many were drawn.

    Example:
        >>> model = tf.keras.Sequential([tf.keras.layers.Dropout(0.5)])
        >>> Draws(7).take(model)  # plain Keras then drops what an arm drops
    """

    def __init__(self, seed: int) -> None:
        """Count from 0. Made in the scope of the strategy, where there is one."""
        self._seed = seed
        self._drawn = tf.Variable(
            0,
            trainable=False,
            dtype=tf.int64,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def next(self) -> Any:
        """The seed of the next draw, int64 [2]."""
        self._drawn.assign_add(1)
        return tf.stack([tf.constant(self._seed, tf.int64), self._drawn.read_value()])

    def position(self) -> Any:
        """How many were drawn, int64."""
        return self._drawn.read_value()

    def count(self) -> int:
        """How many were drawn, outside of a step."""
        return int(self._drawn.numpy())

    def rewind(self, position: Any) -> None:
        """Draw what follows a position once more, for other rows of the batch."""
        self._drawn.assign(position)

    def step(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A step of plain Keras, or a function with a tape, that draws so."""

        def drawn(*args: Any, **kwargs: Any) -> Any:
            with drawing(self):
                return function(*args, **kwargs)

        return drawn

    def take(self, model: Any) -> None:
        """Let the steps of a model of plain Keras draw so."""
        for name in ("train_step", "test_step"):
            vars(model)[name] = self.step(getattr(model, name))


@dataclass
class _Drawing:
    """How a replica's step draws: see `drawing`."""

    draws: Draws | None
    number: int
    size: int
    rows: Any
    n: Any
    eager: bool


@contextmanager
def drawing(
    draws: Draws | None, number: int = 0, size: int = 1, rows: Any = 1, n: Any = 1
) -> Iterator[None]:
    """Within this block of a thread, a replica's step draws its own numbers.

    Args:
        draws: by row; None: by number of the replica.
        number: of the replica, from 0.
        size: replicas in all.
        rows: of the global batch that are this replica's, number::size; 0: it runs on the last.
        n: rows of the global batch.
    """
    before = getattr(_here, "drawing", None)
    _here.drawing = _Drawing(draws, number, size, rows, n, tf.executing_eagerly())
    try:
        yield
    finally:
        _here.drawing = before


def _now() -> _Drawing | None:
    """How the step draws that is run here; None: no step, or initial values that it makes."""
    found: _Drawing | None = getattr(_here, "drawing", None)
    lifted = found is not None and tf.executing_eagerly() and not found.eager
    return None if lifted else found


def _while_drawing(owner: Any, name: str, instead: Callable[..., Any]) -> None:
    """Let `instead(drawing, upstream, *args)` be called within a step, and upstream elsewhere."""
    upstream = getattr(owner, name)

    @functools.wraps(upstream)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        found = _now()
        if found is None:
            return upstream(*args, **kwargs)
        return instead(found, upstream, *args, **kwargs)

    setattr(owner, name, hooked)


def _seed(found: _Drawing, upstream: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The seed, integers [2], that a generator gives; upstream gives that of plain Keras."""
    seed = upstream(*args, **kwargs)
    if found.draws is not None:
        return tf.cast(found.draws.next(), seed.dtype)
    return seed + tf.constant([found.number * _STREAM, 0], seed.dtype)


def _seeds(found: _Drawing, upstream: Callable[..., Any], op_seed: Any) -> Any:
    first, second = upstream(op_seed)
    if first is None or found.draws is not None:
        return first, second
    return (first + found.number * _STREAM) % random_seed._MAXINT32, second


def _key_counter(
    found: _Drawing, upstream: Callable[..., Any], generator: Any, shape: Any
) -> tuple[Any, Any]:
    key, counter = upstream(generator, shape)
    if found.draws is not None:
        key, counter, _ = get_key_counter_alg(found.draws.next(), generator.algorithm)
        return key, counter
    moved = tf.bitcast(key, tf.int64) + found.number * _STREAM
    return tf.bitcast(moved, tf.uint64), counter


def _stateless(instead: Callable[..., Any]) -> Callable[..., Any]:
    def drawn(found: _Drawing, upstream: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if found.draws is None:
            return upstream(*args, **kwargs)
        kwargs = {k: v for k, v in kwargs.items() if k not in ("seed", "seed2", "name")}
        return instead(*args, seed=found.draws.next(), **kwargs)

    return drawn


def _by_row(
    found: _Drawing, upstream: Callable[..., Any], shape: Any, *args: Any, **kwargs: Any
) -> Any:
    """A replica's rows of the whole batch's numbers, where the first axis of a shape is rows."""
    if found.draws is None:
        return upstream(shape, *args, **kwargs)
    dtype = tf.as_dtype(kwargs.get("dtype", tf.float32))
    if dtype.is_floating and dtype != tf.float32:  # the same numbers in every precision
        narrow = _by_row(found, upstream, shape, *args, **{**kwargs, "dtype": tf.float32})
        return tf.cast(narrow, dtype)
    if found.size == 1:
        return upstream(shape, *args, **kwargs)
    shape = tf.convert_to_tensor(shape)
    static = tensor_util.constant_value_as_shape(shape)
    length, rows = static[0] if static.rank else None, found.rows
    # What is written as a number is no rows; but where batches have a static size, so have rows.
    if static.rank == 0 or (length and not (isinstance(rows, int) and length == max(rows, 1))):
        return upstream(shape, *args, **kwargs)
    rows, n = (tf.cast(tf.maximum(k, 1), shape.dtype) for k in (rows, found.n))
    own = tf.equal(shape[0], rows)
    drawn = upstream(tf.concat([[tf.where(own, n, shape[0])], shape[1:]], 0), *args, **kwargs)
    first = tf.where(own, tf.minimum(tf.cast(found.number, n.dtype), n - 1), 0)
    return tf.ensure_shape(drawn[first :: tf.where(own, tf.cast(found.size, n.dtype), 1)], static)


def _refused(found: _Drawing, upstream: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if found.draws is None:
        return upstream(*args, **kwargs)
    raise RefusalError(
        "What a step draws must be uniform or normal numbers, to be compared by rows.",
        received=f"{upstream.__name__}",
        advice="Compute it from tf.random.uniform or tf.random.normal.",
    )


def _change_tensorflow() -> None:
    _while_drawing(random_seed, "get_seed", _seeds)
    _while_drawing(tf.random.Generator, "_prepare_key_counter", _key_counter)
    ways: dict[str, Callable[..., Any]] = {
        "random_standard_normal": lambda shape, dtype, seed: tf.random.stateless_normal(
            shape, seed, dtype=dtype
        ),
        "truncated_normal": lambda shape, dtype, seed: tf.random.stateless_truncated_normal(
            shape, seed, dtype=dtype
        ),
        "random_uniform": lambda shape, dtype, seed: tf.random.stateless_uniform(
            shape, seed, dtype=dtype
        ),
        "random_uniform_int": lambda shape, low, high, seed: tf.random.stateless_uniform(
            shape, seed, low, high, low.dtype
        ),
    }
    for name, way in ways.items():
        _while_drawing(gen_random_ops, name, _stateless(way))
    for name in ("normal", "uniform", "uniform_int"):  # integers without bounds are seeds
        _while_drawing(gen_stateless_random_ops_v2, f"stateless_random_{name}_v2", _by_row)
    _while_drawing(gen_stateless_random_ops_v2, "stateless_truncated_normal_v2", _by_row)
    others = {
        gen_random_ops: (
            "multinomial",
            "parameterized_truncated_normal",
            "random_gamma",
            "random_poisson_v2",
            "random_shuffle",
        ),
        gen_stateless_random_ops: (
            "stateless_multinomial",
            "stateless_parameterized_truncated_normal",
            "stateless_random_binomial",
            "stateless_random_poisson",
        ),
        gen_stateless_random_ops_v2: ("stateless_random_gamma_v3", "stateless_shuffle"),
    }
    for module, names in others.items():
        for name in names:
            _while_drawing(module, name, _refused)
    if VERSION == 3:
        _while_drawing(tf.keras.random.SeedGenerator, "next", _seed)


_change_tensorflow()
