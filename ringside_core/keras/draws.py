"""The random numbers of a step: each replica's own in training, those of rows for certificates.

In training replica r adds something of r to the seeds of what it draws; replica 0 draws what plain
Keras would. Where checkpoints are written (`Draws()`) they follow from its number and a count of
draws, by stateless operations: each checkpoint holds the count, and a restart goes on with it. For
certificates (`Draws(seed)`) they are those of the whole global batch, and a replica takes its rows:
so a serial run, plain Keras and every arm see the same masks.

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

from tensorflow.python.eager import context
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
DRAWN = "_ringside_drawn"  # attribute of a model: the count of draws of its steps
_OF_A_STEP = 2**32  # more draws than one step makes


class Draws:
    """The random numbers of a process' steps, as a function of a seed and of how many were drawn.

    Attributes:
        by_row: a replica draws its rows of the global batch's numbers; else its own numbers.

    Example:
        >>> model = tf.keras.Sequential([tf.keras.layers.Dropout(0.5)])
        >>> Draws(7).take(model)  # plain Keras then drops what an arm drops
    """

    def __init__(self, seed: int | None = None) -> None:
        """Count from 0. Made in the scope of the strategy, where there is one.

        Args:
            seed: of numbers by row; None: TensorFlow's global one, and the replica's number.
        """
        self._seed, self.by_row = seed, seed is not None
        self.drawn = tf.Variable(
            0,
            trainable=False,
            dtype=tf.int64,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def begin_step(self) -> None:
        """Count from a number that is the same in all replicas, however much each drew before."""
        if not self.by_row:
            self.drawn.assign((self.position() // _OF_A_STEP + 1) * _OF_A_STEP)

    def next(self, number: int) -> Any:
        """The seed of the next draw of a replica, int64 [2]."""
        seed = self._seed
        if seed is None:
            seed = (context.global_seed() or 0) + number * _STREAM
        self.drawn.assign_add(1)
        return tf.stack([tf.constant(seed, tf.int64), self.drawn.read_value()])

    def position(self) -> Any:
        """How many were drawn, int64."""
        return self.drawn.read_value()

    def count(self) -> int:
        """How many were drawn, outside of a step."""
        return int(self.drawn.numpy())

    def rewind(self, position: Any) -> None:
        """Draw what follows a position once more, for other rows of the batch."""
        self.drawn.assign(position)

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
    times: Any
    eager: bool

    def next(self) -> Any:
        """The seed of the next draw that a count of draws gives, int64 [2]; None: there is none."""
        return None if self.draws is None else self.draws.next(self.number)

    @property
    def by_row(self) -> bool:
        """Whether numbers are those of rows."""
        return self.draws is not None and self.draws.by_row


@contextmanager
def drawing(
    draws: Draws | None, number: Any = 0, size: Any = 1, rows: Any = 1, n: Any = 1, times: Any = 1
) -> Iterator[None]:
    """Within this block of a thread, a replica's step draws its own numbers.

    Args:
        draws: by row, or counted; None: by number of the replica.
        number: of the replica, from 0.
        size: replicas in all.
        rows: of the global batch that are this replica's, number::size; 0: it runs on the last.
        n: rows of the global batch.
        times: how often each of these stands in the batch; all draw the same.
    """
    before = getattr(_here, "drawing", None)
    _here.drawing = _Drawing(draws, number, size, rows, n, times, tf.executing_eagerly())
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
    seed = upstream(*args, **kwargs)  # a checkpoint holds how these go on
    if found.by_row:
        return tf.cast(found.next(), seed.dtype)
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
    if (seed := found.next()) is not None:
        key, counter, _ = get_key_counter_alg(seed, generator.algorithm)
        return key, counter
    moved = tf.bitcast(key, tf.int64) + found.number * _STREAM
    return tf.bitcast(moved, tf.uint64), counter


def _stateless(instead: Callable[..., Any]) -> Callable[..., Any]:
    def drawn(found: _Drawing, upstream: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if (seed := found.next()) is None:
            return upstream(*args, **kwargs)
        kwargs = {k: v for k, v in kwargs.items() if k not in ("seed", "seed2", "name")}
        return instead(*args, seed=seed, **kwargs)

    return drawn


def _not_by_row(instead: Callable[..., Any]) -> Callable[..., Any]:
    counted = _stateless(instead)

    def drawn(found: _Drawing, upstream: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        way = _refused if found.by_row else counted
        return way(found, upstream, *args, **kwargs)

    return drawn


def _by_row(
    found: _Drawing, upstream: Callable[..., Any], shape: Any, *args: Any, **kwargs: Any
) -> Any:
    """A replica's rows of the whole batch's numbers, where the first axis of a shape is rows."""
    if not found.by_row:
        return upstream(shape, *args, **kwargs)
    dtype = tf.as_dtype(kwargs.get("dtype", tf.float32))
    if dtype.is_floating and dtype != tf.float32:  # the same numbers in every precision
        narrow = _by_row(found, upstream, shape, *args, **{**kwargs, "dtype": tf.float32})
        return tf.cast(narrow, dtype)
    if isinstance(found.size, int) and found.size == found.times == 1:
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
    drawn = drawn[first :: tf.where(own, tf.cast(found.size, n.dtype), 1)]
    if not (isinstance(found.times, int) and found.times == 1):
        drawn = tf.repeat(drawn, tf.where(own, tf.cast(found.times, n.dtype), 1), axis=0)
    return tf.ensure_shape(drawn, static)


def _refused(found: _Drawing, upstream: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if not found.by_row:
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
    random = tf.random
    ways = {
        "multinomial": lambda logits, num_samples, seed, output_dtype: random.stateless_categorical(
            logits, num_samples, seed, output_dtype
        ),
        "random_gamma": lambda shape, alpha, seed: random.stateless_gamma(
            tf.concat([shape, tf.shape(alpha)], 0), seed, alpha, dtype=alpha.dtype
        ),
        "random_poisson_v2": lambda shape, rate, seed, dtype: random.stateless_poisson(
            tf.concat([shape, tf.shape(rate)], 0), seed, rate, dtype
        ),
        "random_shuffle": lambda value, seed: random.experimental.stateless_shuffle(value, seed),
    }
    for name, way in ways.items():
        _while_drawing(gen_random_ops, name, _not_by_row(way))
    others = {
        gen_random_ops: ("parameterized_truncated_normal",),  # nothing public calls it
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
