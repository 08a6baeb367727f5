"""What a `tf.data.Dataset` is made of, asked of its parts; nothing of it is read.

Its graph (`tf.raw_ops.DatasetToGraphV2`) would hold a copy of all arrays. Private, TensorFlow 2.21:
`Dataset._inputs` and `_functions`, the names of its classes, and of some `_batch_size`,
`_drop_remainder` and `_deterministic`.
"""

from collections.abc import Iterator
from typing import Any

from ringside_core.keras import tf

# Parts that leave the sizes of batches as they are.
_KEEP_BATCHES = {
    *("Map", "ParallelMap", "Prefetch", "Options", "Take", "Skip", "Cache", "Repeat", "Shuffle"),
    *("Restructured", "AssertCardinality"),
}
_BATCHES = {"Batch", "ParallelBatch", "PaddedBatch"}
# Parts whose elements, in number and order, do not depend on what the elements before them hold.
_KEEP_ORDER = _KEEP_BATCHES | _BATCHES | {"Rebatch", "DenseToRagged", "Shard", "Zip", "Concatenate"}
_PYTHON = ("PyFunc", "EagerPyFunc")
_DRAWS = (
    *_PYTHON,
    *("Random", "Rng", "Multinomial", "TruncatedNormal", "ParameterizedTruncated"),
    *("StatefulUniform", "StatefulStandardNormal", "StatefulTruncatedNormal", "StatefulRandom"),
    "SampleDistorted",
    *("AssignVariableOp", "AssignAddVariableOp"),  # the seeds of Keras 3
)


def kind(data: Any) -> str:
    """Of the last part of a data set: `Map` of a `_MapDataset`."""
    return type(data).__name__.strip("_").removesuffix("Dataset")


def parts_of(data: Any) -> Iterator[Any]:
    """A data set and all that it is made from."""
    yield data
    for part in data._inputs():
        yield from parts_of(part)


def nodes_of(data: Any) -> list[Any]:
    """Those of the graph of a data set and of its functions; none: it fits in no graph of 2 GB."""
    variant = tf.data.experimental.to_variant(data)
    try:
        graph = tf.raw_ops.DatasetToGraphV2(input_dataset=variant, external_state_policy=1)
        found = tf.compat.v1.GraphDef.FromString(graph.numpy())
    except (tf.errors.OpError, ValueError):
        return []
    return [*found.node, *(node for body in found.library.function for node in body.node_def)]


def operations_of(part: Any) -> set[str]:
    """Those of the functions of a part."""
    found = set()
    for function in part._functions():
        graph = function.function.graph.as_graph_def()
        for body in (graph.node, *(f.node_def for f in graph.library.function)):
            found |= {node.op for node in body}
    return found


def runs_python(part: Any) -> bool:
    """Whether a function of a part runs Python, as a generator does."""
    return any(op in _PYTHON for op in operations_of(part))


def drawn_again(data: Any) -> str:
    """Why a restart may not read the rows that were due; empty: it does.

    A restart makes the iterators of the epochs before again, and does not read them. A shuffle
    draws when its iterator is made, or at the first element of what stands behind it.
    """
    if any(map(runs_python, parts_of(data))):
        return "The data run Python"
    for part in parts_of(data):
        if kind(part) in ("Shuffle", "Concatenate", "Cache"):
            before = (each for input_ in part._inputs() for each in parts_of(input_))
            if any(kind(each) == "Shuffle" for each in before):
                return f"A {kind(part).lower()} stands behind a shuffle of the data"
    return ""


def draws(part: Any) -> bool:
    """Whether a function of a part of a data set draws, or runs Python."""
    return _draw(operations_of(part))


def _draw(operations: set[str]) -> bool:
    return any(op.startswith(_DRAWS) for op in operations)


def _within(part: Any) -> tuple[set[str], bool]:
    """The operations of a part's functions and data, and whether it or they lose the order."""
    if "Interleave" not in kind(part) and kind(part) != "FlatMap":
        return operations_of(part), getattr(part, "_deterministic", "default") == "false"
    # What it reads from is a list of files, seldom more; it tells nothing else of what is within.
    nodes = nodes_of(part)
    loses = not nodes or any(node.attr["deterministic"].s == b"false" for node in nodes)
    return {node.op for node in nodes}, loses


def reads_the_same(data: Any) -> bool:
    """Whether data are the same in every process without the determinism of operations.

    Nothing that runs in parallel draws, runs Python or loses its order. So it is in what Keras
    makes of arrays and of Python.
    """
    if not isinstance(data, tf.data.Dataset):
        return True
    for part in parts_of(data):
        operations, loses_order = _within(part)
        parallel = any(name.startswith("Parallel") for name in (kind(part), *operations))
        if loses_order or (parallel and _draw(operations)):
            return False
    return data.options().deterministic is not False


def draws_in_parallel(data: Any) -> bool:
    """Whether a parallel map draws, and nothing else depends on which numbers it draws.

    Which elements there are, and in which order, is the same in every process then. What they draw
    is so only where the map runs on one after the other, several times slower.
    """
    if not isinstance(data, tf.data.Dataset) or data.options().deterministic is False:
        return False
    found, left = False, [(data, True)]
    while left:
        part, keeps = left.pop()
        if _may_differ(part):
            return False
        if kind(part) == "ParallelMap" and draws(part):
            if not keeps:
                return False
            found = True
        keeps = keeps and kind(part) in _KEEP_ORDER
        left += [(each, keeps) for each in part._inputs()]
    return found


def _may_differ(part: Any) -> bool:
    """Whether processes may get other elements, or in another order; then they are compared."""
    operations, loses_order = _within(part)
    is_map = kind(part) in ("Map", "ParallelMap")
    return kind(part) == "Shard" or loses_order or (not is_map and _draw(operations))


def authors_batch_of(data: Any) -> int | None:
    """The size that a data set's own `batch` asks for; None: it is not found."""
    while kind(data) in _KEEP_BATCHES:
        (data,) = data._inputs()
    return int(data._batch_size) if kind(data) in _BATCHES else None
