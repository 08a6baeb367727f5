"""`ringside.shard`: each process reads its part of the data; without it each reads all of them.

Rows r, r + R, … of a data set are those that replica r gets of its batches (docs/decisions/0009).
"""

import hashlib
import weakref
from typing import Any

import numpy as np

from backends.base import Backend
from ringside_core.keras import tf
from ringside_core.specs import RefusalError
from trainers.data_graph import draws, kind, nodes_of, parts_of

_BEHIND_BATCH = {"Prefetch", "Options"}
_BEHIND = {"Map", "ParallelMap", "Prefetch", "Options", "Cache", "Repeat"}
_shards: Any = weakref.WeakKeyDictionary()  # data set → (processes, replicas, what it divides)


def sharded(data: Any, backend: Backend) -> Any:
    """The rows of a data set that the replicas of this process get; see `ringside.shard`."""
    if not isinstance(data, tf.data.Dataset):
        raise RefusalError("ringside.shard takes a tf.data.Dataset.", received=type(data).__name__)
    if backend.size == 1 or not backend.capabilities.synchronous:
        return data
    if is_sharded(data):
        raise RefusalError("ringside.shard stands once.", received="data that it has divided")
    rows, replicas = int(data.cardinality()), backend.num_replicas
    if rows == tf.data.UNKNOWN_CARDINALITY:
        raise RefusalError(
            "ringside.shard must know how many rows there are.",
            received="data of unknown cardinality",
            advice="Add .repeat(), or .apply(tf.data.experimental.assert_cardinality(n)).",
        )
    if rows > 0 and rows % replicas:
        raise RefusalError(
            "ringside.shard gives each replica as many rows.",
            received=f"{rows} rows for {replicas} replicas",
            advice=f"Add .repeat() or .take({rows - rows % replicas}) before it.",
        )
    here = replicas // backend.size
    if here == 1:
        own = data.shard(backend.size, backend.rank)
    else:
        numbered = data.enumerate().filter(lambda k, _: k % replicas // here == backend.rank)
        count = rows // backend.size if rows >= 0 else rows
        own = numbered.map(lambda _, row: row).apply(tf.data.experimental.assert_cardinality(count))
    _shards[own] = backend.size, replicas, data
    return own


def is_sharded(data: Any) -> bool:
    """Whether each process reads its part of a data set."""
    return bool(_shards) and any(part in _shards for part in parts_of(data))


def digest(data: Any) -> int:
    """A number of 48 bits of what `ringside.shard` was given: arrays and names of files, in order.

    Returns:
        0: it divides nothing. Of what Python yields it says nothing.
    """
    if not isinstance(data, tf.data.Dataset) or not is_sharded(data):
        return 0
    *_, given = next(_shards[part] for part in parts_of(data) if part in _shards)
    found = hashlib.blake2b(digest_size=6)
    for node in nodes_of(given):
        if node.op != "Const":
            continue
        tensor = node.attr["value"].tensor
        if tensor.dtype == tf.resource.as_datatype_enum:
            continue  # such as a shuffle's generator: its name and device are of its process
        if tensor.dtype == tf.string.as_datatype_enum:  # files may lie in a folder of each process
            names = np.ravel(tf.io.parse_tensor(tensor.SerializeToString(), tf.string).numpy())
            found.update(b"/".join(name.rpartition(b"/")[2] for name in names))
        else:
            found.update(tensor.SerializeToString(deterministic=True))
    return int.from_bytes(found.digest())


def digest_of_held_out(data: Any) -> int:
    """A number of 48 bits of arrays, or of how many batches data have; one for all other data."""
    if isinstance(data, tf.data.Dataset):
        return int(data.cardinality()) % 2**48
    found = hashlib.blake2b(digest_size=6)
    for part in tf.nest.flatten(data):
        if isinstance(part, np.ndarray) and not part.dtype.hasobject:
            found.update(np.ascontiguousarray(part).data)
    return int.from_bytes(found.digest())


def own_batches(data: Any) -> tuple[Any, int, int]:
    """A process's part of each global batch.

    Args:
        data: in batches of the global size.

    Returns:
        (the parts; in how many the processes read them; of how many rows a batch is a multiple).

    Raises:
        RefusalError: `ringside.shard` stands where parts of processes make no global batches.
    """
    if not isinstance(data, tf.data.Dataset) or not is_sharded(data):
        return data, 1, 1
    part, batched = data, None
    while part not in _shards:
        if kind(part) in ("Batch", "ParallelBatch") and batched is None:
            batched = part
        elif obstacle := _obstacle(part, _BEHIND_BATCH if batched is None else _BEHIND):
            raise RefusalError(
                "Behind ringside.shard stand maps that draw nothing, cache() in memory, repeat and "
                "batch, in this order, and prefetch.",
                received=obstacle,
                advice="Write it before ringside.shard: shuffle rows there, and draw a seed for "
                "each row that a stateless operation takes behind it.",
            )
        (part,) = part._inputs()
    processes, replicas, _ = _shards[part]
    if batched is None:
        raise RefusalError(
            "ringside.shard stands before the data are batched.",
            received="data that are batched before it, or not at all",
            advice="Divide rows: ringside.shard(rows).map(…).batch(n).",
        )
    size = int(batched._batch_size)
    check_divides(size, replicas)
    own = batched._inputs()[0].batch(
        size // processes,
        drop_remainder=bool(batched._drop_remainder),
        num_parallel_calls=tf.data.AUTOTUNE if kind(batched) == "ParallelBatch" else None,
    )
    if data is not batched:  # but for options, what stands behind it reads ahead
        own = own.prefetch(tf.data.AUTOTUNE)
    return own.with_options(data.options()), processes, replicas


def check_divides(rows: int, replicas: int) -> None:
    """Refuse batches that are no multiple of the replicas."""
    if rows % replicas:
        raise RefusalError(
            "ringside.shard divides batches that are a multiple of the replicas.",
            received=f"batches of {rows} rows for {replicas} replicas",
        )


def _obstacle(part: Any, kept: set[str]) -> str:
    """Why a part may not stand behind `ringside.shard`; empty: it may."""
    if kind(part) not in kept:
        return f"{kind(part)} behind it"
    if draws(part):
        return "a map behind it that draws: it would draw the same in every process"
    if kind(part) == "Cache" and part._filename.numpy():
        return "cache(file) behind it: a run of another size has other rows in that file"
    return ""
