"""Random numbers for a whole batch at once, those of each row from a key of its own.

A function over a batch draws numbers of shape [batch, …]. TensorFlow makes all of them from one
seed, so what an example gets depends on its place in the batch. Here row r is a function of key r
and of the draw alone, whatever batch the example stands in. The numbers are those of SplitMix64,
computed for all rows in one call.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ringside_core.keras import tf
from ringside_core.workloads.functions import called, rewritten
from ringside_core.workloads.randomness import (
    GENERATOR_STATE,
    PYTHON,
    Draws,
    Stream,
    by_tensorflow,
    drawing_from,
    in_loop,
    operations,
    random_operations,
)
from ringside_core.workloads.splitmix import GAMMA, mixed, shifted, word

# Names in the graph: what a seed of ours is made by, and what uses one as it should be used.
_SEED, _ROWS = "ringside_seed", "ringside_rows"
# Rows that a processor computes in one go. The rest of a batch it may round otherwise.
_AT_ONCE = 16
# Two sizes: a shape may begin with the size of one batch by chance.
_TRIAL_BATCHES = (2 * _AT_ONCE, _AT_ONCE)


class NotByRowError(Exception):
    """A draw that does not belong to the rows of the batch."""


def row_keys(seed: int, epoch: Any, numbers: Any) -> Any:
    """The key of each example of a batch, [batch] of uint64.

    Args:
        seed: of what is drawn (`draw_seed`).
        epoch: scalar or [batch], any integer type.
        numbers: of the examples, [batch], any integer type.
    """
    keys = mixed(tf.cast(epoch, tf.uint64) + word(seed * GAMMA))
    return mixed(keys + tf.cast(numbers, tf.uint64) * word(GAMMA))


class RowStream(Stream):
    """Draw n of row r is a function of key r and of n; draws are numbered as they are traced."""

    def __init__(self, keys: Any) -> None:
        """Begin with draw 0.

        Args:
            keys: one for each row of the batch, [batch] of uint64.
        """
        self._keys, self._draws = keys, Draws()

    def answer(self, operation: str, given: dict[str, Any]) -> Any:
        """See Stream.

        Raises:
            NotByRowError: the draw is not of shape [batch, …], or it is in a loop or a branch.
        """
        self._check_place()
        number = self._draws.next()
        draw = word(number * GAMMA)
        if operation == GENERATOR_STATE:
            # A generator's state. Numbers are made from it below, by `answer_seeded`.
            state = [number * GAMMA % 2**64 >> 1, number, number]
            return tf.identity(tf.constant(state, tf.int64), name=_SEED)
        return self._numbers(operation, draw, given)

    def state(self) -> Any:
        """See Stream."""
        return self.answer(GENERATOR_STATE, {})

    def answer_seeded(self, operation: str, given: dict[str, Any]) -> Any:
        """Numbers from a seed: those of the rows if the seed was drawn here, else TensorFlow's.

        Raises:
            NotByRowError: see `answer`.
        """
        key, counter = given["key"], given["counter"]
        if not _is_from_seed(key):
            return by_tensorflow(operation, given)
        self._check_place()
        kind = operation.removeprefix("stateless_").removesuffix("_v2")
        if kind == "random_uniform_full_int":  # the seed of another draw
            return by_tensorflow(operation, given)
        with tf.name_scope(_ROWS):
            words = [tf.reshape(key, [-1])[0], tf.reshape(counter, [-1])[0]]
            draw = mixed(tf.cast(words[0], tf.uint64)) + tf.cast(words[1], tf.uint64)
        return self._numbers(_NAMES.get(kind, kind), draw, given)

    def _check_place(self) -> None:
        same = tf.compat.v1.get_default_graph() is getattr(self._keys, "graph", None)
        if in_loop(self._keys) or not (same or tf.executing_eagerly()):
            raise NotByRowError("a draw within a loop or a branch")

    def _numbers(self, kind: str, draw: Any, given: dict[str, Any]) -> Any:
        # TensorFlow works out here what a shape is that is computed in the graph.
        shape = tf.broadcast_to(False, given.get("shape", [])).shape
        rows = self._keys.shape[0]
        known = shape.is_fully_defined() and shape.rank > 0
        if kind not in _FROM_BITS or not known or shape[0] != rows:
            raise NotByRowError(f"{kind} of shape {shape} for {rows} examples")
        with tf.name_scope(_ROWS):
            # Each number of a row has a counter of its own, the same in all rows.
            counters = np.arange(1, shape[1:].num_elements() + 1, dtype=np.uint64)
            keys = mixed(tf.bitwise.bitwise_xor(self._keys, mixed(draw)))
            bits = mixed(keys[:, None] + tf.constant(counters) * word(GAMMA))
            return tf.reshape(_FROM_BITS[kind](bits, given), shape)


def can_go_by_row(function: Callable[..., Any], examples: Any) -> bool:
    """Whether a function over batches gives each example the same, whatever its batch is.

    Args:
        function: batch → batch.
        examples: a tf.data.Dataset of single elements, as the function's batches hold them.
    """
    most = max(_TRIAL_BATCHES)
    batch = next(iter(examples.repeat().take(most).batch(most)))
    keys = row_keys(0, 0, tf.range(most))
    drawn = tf.function(lambda keys, part: by_row(function, keys, part), autograph=False)
    slices = [slice(0, size) for size in _TRIAL_BATCHES]
    slices += [slice(row, row + 1) for row in range(most)]

    def made(rows: slice) -> list[Any]:
        given = keys[rows], tf.nest.map_structure(lambda column: column[rows], batch)
        traced = drawn.get_concrete_function(*given)
        if (
            random_operations([traced])
            or set(operations([traced])) & set(PYTHON)
            or _leaks(traced.graph)
        ):
            raise NotByRowError("a draw that belongs to no row")
        return [column.numpy() for column in tf.nest.flatten(drawn(*given))]

    try:
        of_slices = {(rows.start, rows.stop): made(rows) for rows in slices}
    except NotByRowError:
        return False
    whole = of_slices[0, most]
    return all(
        np.array_equal(column[begin:end], own)
        for (begin, end), part in of_slices.items()
        for column, own in zip(whole, part, strict=True)
    )


def by_row(function: Callable[..., Any], keys: Any, batch: Any) -> Any:
    """What a function makes of a batch when it draws for each row from the row's key.

    The function gets a multiple of _AT_ONCE rows, of which the last ones are repeated.

    Args:
        function: batch → batch.
        keys: [batch] of uint64 (`row_keys`).
        batch: a nest of tensors, each [batch, …].
    """
    rows = int(keys.shape[0])
    filled = -(-rows // _AT_ONCE) * _AT_ONCE
    if filled > rows:
        at = np.arange(filled) % rows
        batch = tf.nest.map_structure(lambda column: tf.gather(column, at), batch)
        keys = tf.gather(keys, at)
    with drawing_from(RowStream(keys)):
        made = called(rewritten(function), batch)
    return tf.nest.map_structure(lambda column: column[:rows], made)


def _leaks(graph: Any) -> bool:
    """Whether a seed of ours reaches an output of the graph other than as the numbers of rows."""
    todo = [tensor for op in graph.get_operations() if _SEED in op.name for tensor in op.outputs]
    outputs, seen = {id(tensor) for tensor in graph.outputs}, set()
    while todo:
        tensor = todo.pop()
        if id(tensor) in outputs:
            return True
        for op in tensor.consumers():
            if _ROWS not in op.name and op.name not in seen:
                seen.add(op.name)
                todo += op.outputs
    return False


def _is_from_seed(key: Any) -> bool:
    """Whether a tensor is made from a seed of ours, within its graph."""
    if not tf.is_symbolic_tensor(key):
        return False
    todo, seen = [key.op], set()
    while todo:
        op = todo.pop()
        if _SEED in op.name:
            return True
        if op.name not in seen:
            seen.add(op.name)
            todo += [tensor.op for tensor in op.inputs]
    return False


def _unit(bits: Any, dtype: Any) -> Any:
    """Numbers in [0, 1), as many as the type can tell apart."""
    digits = {tf.float16: 11, tf.bfloat16: 8, tf.float32: 24, tf.float64: 53}[tf.as_dtype(dtype)]
    return tf.cast(shifted(bits, 64 - digits), dtype) * tf.cast(2.0**-digits, dtype)


def _inside(bits: Any) -> Any:
    """Numbers in (0, 1), in float64."""
    return (tf.cast(shifted(bits, 11), tf.float64) + 0.5) * 2.0**-53


def _uniform(bits: Any, given: dict[str, Any]) -> Any:
    return _unit(bits, given.get("dtype", tf.float32))


def _normal(bits: Any, given: dict[str, Any]) -> Any:
    return tf.cast(tf.math.ndtri(_inside(bits)), given.get("dtype", tf.float32))


def _truncated_normal(bits: Any, given: dict[str, Any]) -> Any:
    low = 0.022750131948179207  # share of normal numbers below -2
    within = low + (1 - 2 * low) * _inside(bits)
    return tf.cast(tf.math.ndtri(within), given.get("dtype", tf.float32))


def _uniform_int(bits: Any, given: dict[str, Any]) -> Any:
    low = tf.convert_to_tensor(given["minval"])
    span = tf.cast(tf.cast(given["maxval"], tf.int64) - tf.cast(low, tf.int64), tf.uint64)
    return low + tf.cast(tf.math.floormod(bits, span), low.dtype)


_FROM_BITS: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "random_uniform": _uniform,
    "random_uniform_int": _uniform_int,
    "random_standard_normal": _normal,
    "truncated_normal": _truncated_normal,
}
# TensorFlow's operations with a seed are named otherwise than those without.
_NAMES = {"random_normal": "random_standard_normal"}
