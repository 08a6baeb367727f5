"""The rows of a global batch: which are a replica's, and a hash that tells them from others.

Replica r of R gets rows r, r + R, r + 2R … of each batch: what `.shard(R, r)` before
`.batch(B / R)` would give it. A short last batch needs no special case.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ringside_core.keras import tf
from ringside_core.keras.part import Part, here
from ringside_core.specs import RefusalError


def cut(batch: Any, r: int, size: int) -> tuple[Any, Any, Any]:
    """A replica's rows of a batch.

    Args:
        batch: a nest of tensors [n, …], also ragged and sparse ones. Scalars, and parts with
            another static number of rows than the batch's, belong to every row.
        r: number of the replica.
        size: replicas in all.

    Returns:
        (rows r::size of every part, their number, n). A replica without rows gets the last one, and
        the number 0.

    Raises:
        RefusalError: no part has rows, or it is not known which parts have. One replica takes all.

    Example:
        >>> part, rows, n = cut({"x": tf.range(5)}, 1, 2)
        >>> part["x"].numpy().tolist(), rows, n
        ([1, 3], 2, 5)
    """
    flat = [t for t in tf.nest.flatten(batch) if t is not None]
    if size == 1:
        n = rows_of(flat, divided=False)[0]
        return batch, n, n
    n, beside = rows_of(flat)
    least, most = (min, max) if isinstance(n, int) else (tf.minimum, tf.maximum)
    rows, first = most((n - r + size - 1) // size, 0), least(r, n - 1)

    def own(t: Any) -> Any:
        if isinstance(t, tf.SparseTensor):
            return _sparse_rows(t, first, size, most(rows, 1))
        return t[first::size]

    return _with_rows(batch, beside, own), rows, n


def repeated(batch: Any, times: int) -> Any:
    """A batch in which each row stands so many times, one after the other."""
    beside = rows_of([t for t in tf.nest.flatten(batch) if t is not None])[1]
    return _with_rows(batch, beside, partial(tf.repeat, repeats=times, axis=0))


def _with_rows(batch: Any, beside: set[int], change: Callable[[Any], Any]) -> Any:
    """A batch whose parts that have rows are changed."""

    def changed(t: Any) -> Any:
        return t if t is None or _is_single(t) or _is_beside(t, beside) else change(t)

    return tf.nest.map_structure(changed, batch)


def rows_of(parts: list[Any], *, divided: bool = True) -> tuple[Any, set[int]]:
    """The number of rows of a batch, an int if it is static, and those of parts beside the rows.

    Args:
        parts: of the batch.
        divided: among replicas; else its parts may have any numbers of rows, and the first counts.

    Raises:
        RefusalError: of a batch that is divided: see `cut`.
    """
    found = [_number_of(t) for t in parts if not _is_single(t)]
    if not found and not divided:
        return 1, set()
    if not found:
        raise RefusalError(
            "A batch must have rows: an array or tensor of one number for each example.",
            received=f"{len(parts)} single numbers",
        )
    static = [k for k in found if isinstance(k, int)]
    dynamic = [k for k in found if not isinstance(k, int)]
    if not dynamic:
        n = static[0]
        if 2 * static.count(n) <= len(static):
            if not divided:
                return n, set()
            raise RefusalError(
                "Most parts of a batch must have as many rows as its first part.",
                received=f"parts of {', '.join(map(str, static))} rows",
                advice="What belongs to every row may be a constant of the model.",
            )
        return n, set(static) - {n}
    for other in dynamic[1:] if divided else ():
        # Not `tf.debugging.assert_equal`, whose tf.cond a strategy's step cannot always run.
        tf.raw_ops.Assert(
            condition=tf.equal(dynamic[0], other),
            data=["the parts of a batch must have as many rows", dynamic[0], other],
        )
    return dynamic[0], set(static)


def block(batch: Any, r: int, size: int) -> tuple[Any, Any]:
    """The r-th of `size` parts of a batch, one after the other: Keras joins predictions so.

    Returns:
        (the part, its number of rows). A part without rows is one row, and the number 0: some
        kernels take no empty batch.
    """
    n, beside = rows_of([t for t in tf.nest.flatten(batch) if t is not None])
    least, most = (min, max) if isinstance(n, int) else (tf.minimum, tf.maximum)
    rows = (r + 1) * n // size - r * n // size
    begin = least(r * n // size, n - 1)
    end = begin + most(rows, 1)

    def own(t: Any) -> Any:
        if isinstance(t, tf.SparseTensor):
            others = [tf.zeros_like(t.dense_shape[1:]), t.dense_shape[1:]]
            start = tf.concat([[tf.cast(begin, tf.int64)], others[0]], 0)
            length = tf.concat([[tf.cast(end - begin, tf.int64)], others[1]], 0)
            return tf.sparse.slice(t, start, length)
        return t[begin:end]

    return _with_rows(batch, beside, own), rows


def row_hash(batch: Any, r: int = 0, size: int = 1, whole: Any = None) -> Any:
    """A hash of the rows of a batch in their order, int64.

    It is a sum over rows, of what a row holds × an odd fingerprint of its place in the global
    batch: the hashes of all replicas' rows add up to that of the whole batch.

    Args:
        batch: a nest of tensors.
        r: its rows are rows r::size of a global batch.
        size: see r.
        whole: the batch that they were cut from, which says what stands beside the rows; None: they
            are the batch.
    """
    total = tf.zeros([], tf.int64)
    held: list[Any] = []  # by the rows of each dense part
    parts = [t for t in tf.nest.flatten(batch) if t is not None and not _is_single(t)]
    of = batch if whole is None else whole
    of = [t for t in tf.nest.flatten(of) if t is not None and not _is_single(t)]
    beside = rows_of(of, divided=size > 1)[1]
    for k, (t, from_part) in enumerate(zip(parts, of, strict=True)):
        if _is_beside(from_part, beside):
            continue
        if isinstance(t, tf.Tensor):
            if t.dtype == tf.float32 and tf.keras.backend.floatx() == "float64":
                t = tf.cast(t, tf.float64)  # as Keras does with arrays, and not with a data set
            held.append(_fingerprints(t) * _form(k, t))
            continue
        for level, (values, row, inner) in enumerate(_entries(t)):
            columns = [row * size + r, tf.zeros_like(row) + (64 * k + level)]
            shape = tf.zeros_like(row)[:, None] + tf.shape(values, tf.int64)[None, 1:]
            place = tf.concat([tf.stack(columns, 1), inner, shape], 1)
            total += tf.reduce_sum(_fingerprints(values) * (_fingerprints(place) | 1))
    # Of a batch that is not divided, parts may have other numbers of rows; the sum is the same.
    for rows in [sum(held)] if held and size > 1 else held:
        places = tf.range(tf.size(rows, tf.int64)) * size + r
        total += tf.reduce_sum(rows * (_fingerprints(places) | 1))
    return total


def _form(k: int, t: Any) -> Any:
    """An odd number of part k and the form of its rows; a constant where that is static."""
    of = [[k, *t.shape[1:]]] if t.shape.rank is not None else [[None]]
    if None in of[0]:
        of = tf.concat([[[k]], tf.shape(t, tf.int64)[None, 1:]], 1)
    return _fingerprints(tf.convert_to_tensor(of, tf.int64))[0] | 1


def _entries(t: Any) -> Iterator[tuple[Any, Any, Any]]:
    """(values [m, …], the row of each [m], where it is in its row [m, …]) of a part, by levels."""
    if isinstance(t, tf.SparseTensor):
        yield t.values, t.indices[:, 0], t.indices[:, 1:]
        return
    rows, row, inner = t.nrows(tf.int32), tf.cast(t.value_rowids(), tf.int64), t.values
    while True:
        counts = tf.math.bincount(tf.cast(row, tf.int32), minlength=rows, dtype=tf.int64)
        first = tf.gather(tf.cumsum(counts, exclusive=True), row)
        column = tf.range(tf.size(row, tf.int64), dtype=tf.int64) - first
        if not isinstance(inner, tf.RaggedTensor):
            yield inner, row, column[:, None]
            return
        yield inner.row_lengths(), row, column[:, None]
        row, inner = tf.gather(row, inner.value_rowids()), inner.values


def _fingerprints(rows: Any) -> Any:
    rows = tf.cast(rows, tf.uint8) if rows.dtype == tf.bool else rows
    flat = tf.reshape(rows, [_number_of(rows), -1])
    if flat.dtype == tf.string:
        flat = tf.strings.reduce_join(flat, axis=1, separator="\0")
    return tf.bitcast(tf.raw_ops.Fingerprint(data=flat, method="farmhash64"), tf.int64)


def _number_of(t: Any) -> Any:
    if isinstance(t, tf.RaggedTensor):
        return t.nrows(tf.int32)
    if isinstance(t, tf.SparseTensor):
        return tf.cast(t.dense_shape[0], tf.int32)
    if t.shape.rank is None:
        return tf.shape(t)[0]
    return t.shape[0] if t.shape[0] is not None else tf.shape(t)[0]


def _is_beside(t: Any, beside: set[int]) -> bool:
    return isinstance(number := _number_of(t), int) and number in beside


def _is_single(t: Any) -> bool:
    return isinstance(t, tf.Tensor) and t.shape.rank == 0


def _sparse_rows(t: Any, first: Any, size: int, rows: Any) -> Any:
    start, step = tf.cast(first, tf.int64), tf.constant(size, tf.int64)
    own = (t.indices[:, 0] >= start) & ((t.indices[:, 0] - start) % step == 0)
    kept = tf.sparse.retain(t, own)
    indices = tf.concat([(kept.indices[:, :1] - start) // step, kept.indices[:, 1:]], 1)
    shape = tf.concat([[tf.cast(rows, tf.int64)], t.dense_shape[1:]], 0)
    return tf.SparseTensor(indices, kept.values, shape)


def gather(x: Any) -> Any:
    """The rows of the global batch, in a training step or a loss function that an author wrote.

    A loss that couples the examples of its batch (contrastive, say) then is that of the whole batch
    under every backend: compute it from gathered tensors only. Without distribution it returns x.

    Args:
        x: [rows of this replica, …] of floating point or integers; any number of rows for each
            example.

    Returns:
        [rows of all replicas, …]: those of replica 0 first, in the order of the global batch.

    Raises:
        RefusalError: it is called in a branch, or in a step that takes several passes.
    """
    part = here()
    return x if part is None or part.size == 1 else gathered(part, x)


def gathered(part: Part, x: Any) -> Any:
    """The rows of all replicas in the order of the global batch; see `ringside.gather`.

    A replica's gradient counts by its share of the rows, and all are summed. So what is trained is
    J = Σ share·L over the replicas, where the loss L of each may depend on rows that all have
    gathered. The gradient of J by the rows of replica q is the sum over all replicas of
    share·∂L/∂rows, at q's rows, which is divided by q's share here and multiplied where it is
    applied.

    Args:
        part: in whose step it is called.
        x: [rows of this replica, …].

    Returns:
        [n, …]; of rows that stand several times, each once.

    Raises:
        RefusalError: a pass has a part of the rows only.
    """
    if part.pending is not None and not part.whole:
        raise RefusalError(
            "ringside.gather needs a step that is run in one pass.",
            received="gradient accumulation",
            advice="Train it without gradient accumulation.",
        )
    x = tf.convert_to_tensor(x)
    whole = _floats(part, x) if x.dtype.is_floating else _spread_and_summed(part, x)
    if part.tiled:
        whole = whole[:: part.size]
    if hasattr(x, "_keras_logits"):  # Keras takes a cross-entropy from these where it finds them
        whole._keras_logits = gathered(part, x._keras_logits)
    return whole


def _floats(part: Part, x: Any) -> Any:
    share = tf.cast(part.share, x.dtype)
    own = _with_gradient_times(x, tf.math.reciprocal_no_nan(share))
    return _with_gradient_times(_spread_and_summed(part, own), share)


def _with_gradient_times(x: Any, factor: Any) -> Any:
    @tf.custom_gradient
    def same(tensor: Any) -> Any:
        return tf.identity(tensor), lambda upstream: tf.convert_to_tensor(upstream) * factor

    return same(x)


def _spread_and_summed(part: Part, x: Any) -> Any:
    """Each replica's rows at their places among zeros, added over replicas."""
    narrow = x.dtype == tf.bool or (x.dtype.is_integer and x.dtype.size < 8)  # not added by all
    own = tf.cast(x, tf.int64) if narrow else x
    held = part.n if part.held is None else part.held
    n, rows = tf.convert_to_tensor(held), tf.convert_to_tensor(part.rows)
    places = tf.range(tf.minimum(part.number, n), n, part.size)[:, None]
    spread = tf.scatter_nd(places, own[:rows], tf.concat([[n], tf.shape(own)[1:]], 0))
    static = held if isinstance(held, int) else None
    spread = tf.ensure_shape(spread, [static, *own.shape[1:]])
    with part.together():
        return tf.cast(part.total([spread])[0], x.dtype)
