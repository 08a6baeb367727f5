"""A data set that reads files, with its elements in one order: the same each time, everywhere.

A shuffle of files below an interleave or a flat_map says only in which order elements are read. So
it can be taken off, where Ringside makes the order of examples.
"""

from dataclasses import dataclass, replace
from typing import Any

from ringside_core.keras import tf

# Files that are read in turn, where the author leaves their number to TensorFlow. It would take
# that of the machine's cores, and the order of elements with it.
_IN_TURN = 8
_READERS = ("TFRecordDatasetV2", "TextLineDatasetV2", "FixedLengthRecordDatasetV2")
_INTERLEAVES = ("_InterleaveDataset", "_ParallelInterleaveDataset", "ParallelInterleaveDataset")
_AS_IT_IS = ("CacheDataset", "_AssertCardinalityDataset", "_OptionsDataset", "_PrefetchDataset")


@dataclass(frozen=True)
class InOrder:
    """What reads files, in one order.

    Attributes:
        dataset: that reads them; the one that was given, if it had one order.
        shuffles: of files, that were taken off.
        repeated: whether an endless repeat of files was taken off.
        in_turn: whether TensorFlow would choose how many files are read in turn.
    """

    dataset: Any
    shuffles: tuple[Any, ...] = ()
    repeated: bool = False
    in_turn: bool = False

    @property
    def said(self) -> tuple[str, ...]:
        """What is done otherwise than its author wrote it."""
        if self.shuffles:
            return (
                "its shuffle of files is left away: they are read in the order in which they are "
                "listed",
            )
        return (f"its interleave reads {_IN_TURN} files in turn",) if self.in_turn else ()


def in_order(dataset: Any, *, shuffles: bool = True) -> InOrder:
    """The elements of a data set that reads files, in one order.

    Args:
        dataset: the innermost, whose outer layers are taken off.
        shuffles: whether a shuffle or an endless repeat of files may be taken off. Before a `take`
            it says which elements there are.
    """
    kind = type(dataset).__name__
    if kind in _READERS:
        found = in_order(dataset._impl, shuffles=shuffles)
        return replace(found, dataset=dataset) if found.dataset is dataset._impl else found
    if kind != "_FlatMapDataset" and kind not in _INTERLEAVES:
        return InOrder(dataset)
    files = _files(dataset._input_dataset, shuffles)
    if kind != "_FlatMapDataset":
        return _interleaved(files, dataset)
    if files.dataset is dataset._input_dataset:
        return replace(files, dataset=dataset)
    return replace(files, dataset=files.dataset.flat_map(dataset._map_func._func))


def _interleaved(files: InOrder, dataset: Any) -> InOrder:
    """What an interleave makes of files, in one order."""
    kind, function = type(dataset).__name__, dataset._map_func._func
    chosen = int(dataset._cycle_length) == tf.data.AUTOTUNE
    cycle, block = _IN_TURN if chosen else dataset._cycle_length, dataset._block_length
    if kind == "_InterleaveDataset":
        made = files.dataset.interleave(function, cycle, block)
    elif kind == "_ParallelInterleaveDataset":
        calls = dataset._num_parallel_calls
        made = files.dataset.interleave(function, cycle, block, calls, deterministic=True)
    else:
        ahead = dataset._buffer_output_elements, dataset._prefetch_input_elements
        made = type(dataset)(files.dataset, function, cycle, block, False, *ahead)
    return replace(files, dataset=made, in_turn=chosen or files.in_turn)


def _files(dataset: Any, shuffles: bool) -> InOrder:
    """What files are listed by, without what only says in which order they are read."""
    kind = type(dataset).__name__
    if kind in _AS_IT_IS:
        found = _files(dataset._input_dataset, shuffles)
        return found if found.shuffles or found.repeated else replace(found, dataset=dataset)
    if kind in ("_MapDataset", "_ParallelMapDataset"):
        found = _files(dataset._input_dataset, shuffles)
        if found.dataset is dataset._input_dataset:
            return replace(found, dataset=dataset)
        return replace(found, dataset=found.dataset.map(dataset._map_func._func))
    if shuffles and reshuffles(dataset):
        found = _files(dataset._input_dataset, shuffles)
        return replace(found, shuffles=(*found.shuffles, dataset))
    endless = kind == "_RepeatDataset" and int(dataset._count) == tf.data.INFINITE_CARDINALITY
    if shuffles and endless:
        return replace(_files(dataset._input_dataset, shuffles), repeated=True)
    return in_order(dataset, shuffles=shuffles)


def reshuffles(dataset: Any) -> bool:
    """Whether it is a shuffle with another order each time."""
    kind = type(dataset).__name__
    return kind == "_ShuffleDataset" and dataset._reshuffle_each_iteration is not False


def seeds(shuffle: Any) -> tuple[int, int, int]:
    """What the orders of a shuffle follow from: its two seeds and its buffer."""
    return int(shuffle._seed), int(shuffle._seed2), int(shuffle._buffer_size)


def is_seeded(shuffle: Any) -> bool:
    """Whether its orders follow from its seeds; else TensorFlow draws them."""
    return seeds(shuffle)[:2] != (0, 0)


def shuffled_again(dataset: Any, shuffle: Any) -> Any:
    """A data set in the order that a seeded shuffle, the same each time, gave another one."""
    seed, seed2, buffer = seeds(shuffle)
    parts = tf.nest.flatten(dataset.element_spec)
    made = tf.raw_ops.ShuffleDatasetV3(
        input_dataset=tf.data.experimental.to_variant(dataset),
        buffer_size=buffer,
        seed=seed,
        seed2=seed2,
        seed_generator=tf.raw_ops.DummySeedGenerator(),
        output_types=[one.dtype for one in parts],
        output_shapes=[one.shape for one in parts],
        reshuffle_each_iteration=False,
    )
    return tf.data.experimental.from_variant(made, dataset.element_spec)
