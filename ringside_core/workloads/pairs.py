"""A zip of data sets: the partners that it gives each example, and what its parts draw.

Both are others in each epoch.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ringside_core.keras import python_of, tf
from ringside_core.specs import RefusalError
from ringside_core.workloads.dataset_layers import Layers, batches, draws
from ringside_core.workloads.functions import called, one_after_another


@dataclass(frozen=True)
class Part:
    """One data set of a zip.

    Attributes:
        elements: in their fixed order, without batches.
        order: what tells its order from that of other parts; None: its author's.
        endless: whether it is read again and again.
        batch: size of its batches, and whether a short one is dropped; None: it has none.
    """

    elements: Any
    order: Any = None
    endless: bool = False
    batch: tuple[int, bool] | None = None

    def count(self) -> int:
        """How many elements it has."""
        known = int(self.elements.cardinality())
        if known >= 0:
            return known
        return int(self.elements.reduce(np.int64(0), lambda count, *_: count + 1))


@dataclass(frozen=True)
class Partners:
    """What makes the element of a zip of those parts that are read in order.

    Attributes:
        form: the zip's nest of its parts, by number.
        arrays: all elements of the parts that are drawn, by number.
        orders: of each of them; parts of one order stay together.
    """

    form: Any
    arrays: dict[int, Any]
    orders: dict[int, int]

    def __call__(self, seed: int, epoch: Any, number: Any, element: Any) -> Any:
        """The element of an example in an epoch.

        Args:
            seed: see `draw_seed`.
            epoch: from 0.
            number: of the example.
            element: its parts that are read in order, by name (`name_of`).
        """

        def part(which: int) -> Any:
            if which not in self.arrays:
                return element[name_of(which)]
            arrays = self.arrays[which]
            at = self._place(self.orders[which], _length(arrays), seed, epoch, number)
            return tf.nest.map_structure(lambda array: tf.gather(array, at), arrays)

        return tf.nest.map_structure(part, self.form)

    def _place(self, order: int, length: int, seed: int, epoch: Any, number: Any) -> Any:
        """Which one: in each pass over them, a permutation of all."""
        number = tf.cast(number, tf.int64)
        key = tf.stack([tf.cast(seed, tf.int64), tf.cast(epoch, tf.int64)])
        for one in (order, number // length):
            key = tf.random.experimental.stateless_fold_in(key, one)
        # tf.random.experimental.index_shuffle knows 256 orders only (seen on 2.21).
        words = tf.random.stateless_uniform([3], key, minval=None, maxval=None, dtype=tf.uint32)
        most = tf.constant(length - 1, tf.int64)
        return tf.raw_ops.RandomIndexShuffle(
            index=number % length, seed=words, max_index=most, rounds=8
        )


def name_of(which: int) -> str:
    """Of a part, in an element of those that are read in order."""
    return f"part {which}"


def unzipped(zipped: Any, parts: Sequence[Part]) -> tuple[Any, Partners | None]:
    """The parts of a zip that are read in order, and the others as partners; None: there are none.

    Without a part that keeps its author's order, the shortest one of the others is read in order.

    Args:
        zipped: the data set.
        parts: of its data sets, in order.

    Raises:
        RefusalError: the parts do not fit together, or the partners into arrays.
    """
    _check_batches(parts)
    endless = [part.endless for part in parts]
    if all(endless):
        _check_lengths([part.count() for part in parts], "read again and again")
        endless = [False] * len(parts)
    read = [
        part.elements.repeat() if again else part.elements
        for part, again in zip(parts, endless, strict=True)
    ]
    if all(part.order is None for part in parts):
        return tf.data.Dataset.zip(tf.nest.pack_sequence_as(zipped._datasets, read)), None
    arrays = {n: _stacked(part) for n, part in enumerate(parts) if part.order is not None}
    for order in {part.order for part in parts} - {None}:
        same = [_length(arrays[n]) for n in arrays if parts[n].order == order]
        _check_lengths(same, "shuffled with one seed")
    ends = {n: _length(one) for n, one in arrays.items() if not endless[n]}
    kept = [n for n in range(len(parts)) if n not in arrays]
    if not kept:
        first = min(ends, key=lambda n: ends[n])
        kept = [n for n in arrays if parts[n].order == parts[first].order]
    drawn = [n for n in arrays if n not in kept]
    orders = list(dict.fromkeys(parts[n].order for n in drawn))
    partners = Partners(
        form=tf.nest.pack_sequence_as(zipped._datasets, list(range(len(parts)))),
        arrays={n: tf.nest.map_structure(tf.convert_to_tensor, arrays[n]) for n in drawn},
        orders={n: orders.index(parts[n].order) for n in drawn},
    )
    in_order = tf.data.Dataset.zip({name_of(n): read[n] for n in kept})
    return in_order.take(min(ends.values(), default=-1)), partners


def check_drawn_once(parts: Sequence[Layers]) -> None:
    """Refuse parts of a zip whose draws TensorFlow and Ringside might pair in other ways.

    Raises:
        RefusalError: several parts draw by one function, or cache what they draw.
    """
    of_parts = [
        {
            id(function): function
            for kind, what in part.layers
            if kind == "map" and draws(kind, what)
            for function in [python_of(what._func)]
        }
        for part in parts
    ]
    counts = Counter(number for of_part in of_parts for number in of_part)
    for number, function in (pair for of_part in of_parts for pair in of_part.items()):
        if counts[number] > 1:
            raise RefusalError(
                "A function that draws random numbers must be mapped on one part of a zip.",
                received=f"{getattr(function, '__name__', 'one')}, mapped on several",
                advice="Map it behind the zip, on the whole element.",
            )
    caching = [
        part
        for part in parts
        if "cache" in [kind for kind, _ in part.layers]
        if any(draws(*one) for one in part.layers)
    ]
    if len(caching) > 1:
        raise RefusalError(
            "One part of a zip may cache what it draws, and not several.",
            received=f"{len(caching)} parts with a map that draws and a cache",
            advice="Put cache() behind the zip.",
        )


def last_drawn(part: Layers) -> list[Callable[..., Any]]:
    """Take the maps that draw off a part of a zip; empty: there are none, or they must stay."""
    first = next((n for n, one in enumerate(part.layers) if draws(*one)), len(part.layers))
    last = part.layers[first:]
    batch = [one for one in last[-1:] if one[0] == "batch"]
    maps = last[: len(last) - len(batch)]
    if any(kind != "map" for kind, _ in maps) or batches(part.layers[:first]):
        return []  # it would be other elements that are drawn, or batches
    part.layers = [*part.layers[:first], *batch]
    return [what._func for _, what in maps]


def drawn_behind(
    zipped: Any, parts: Sequence[Part], drawn: Sequence[Sequence[Callable[..., Any]]]
) -> Any:
    """The maps of the parts of a zip, as the function of one map that tf.data has wrapped."""
    functions = [one_after_another(*of_part) for of_part in drawn]

    def made(*element: Any) -> Any:
        whole = element if type(zipped._datasets) is tuple else element[0]
        each = tf.__internal__.nest.flatten_up_to(zipped._datasets, whole)
        new = [called(function, one) for function, one in zip(functions, each, strict=True)]
        return tf.nest.pack_sequence_as(zipped._datasets, new)

    elements = [part.elements for part in parts]
    behind = tf.data.Dataset.zip(tf.nest.pack_sequence_as(zipped._datasets, elements)).map(made)
    return behind._map_func


def _check_batches(parts: Sequence[Part]) -> None:
    """Refuse batches that do not pair example with example."""
    sizes = {None if part.batch is None else part.batch[0] for part in parts}
    batch = parts[0].batch
    if len(sizes) > 1:
        raise RefusalError(
            "Data sets of a zip must have batches of one size, so that examples are pairs.",
            received=f"batches of {' and '.join(str(size or 'no size') for size in sizes)}",
            advice="Leave batch() out of them, and put it after the zip: there is one of each for "
            "an update then. enumerate() is such a zip too; optimizer.iterations counts updates.",
        )
    if batch is None or all(part.batch is not None and part.batch[1] for part in parts):
        return
    counts = {part.count() for part in parts}
    if len(counts) > 1 and min(counts) % batch[0]:
        raise RefusalError(
            "Batches of a zip must be of one size: the last one of the shortest data set is not.",
            received=f"data sets of {' and '.join(map(str, sorted(counts)))} examples, in batches "
            f"of {batch[0]}",
            advice="Leave batch() out of them, and put it after the zip.",
        )


def _check_lengths(lengths: Sequence[int], what: str) -> None:
    if len(set(lengths)) > 1:
        raise RefusalError(
            f"Data sets of a zip that are {what} must have one length.",
            received=f"{' and '.join(map(str, lengths))} elements",
            advice="Shuffle and repeat after the zip, which is as long as its shortest data set.",
        )


def stack_elements(dataset: Any) -> Any:
    """All elements of a finite data set as one nest of arrays [num_examples, …]."""
    # In batches, because each step from TensorFlow to Python costs more than one element.
    batches = [tf.nest.flatten(b) for b in dataset.batch(1024).as_numpy_iterator()]
    columns = [np.concatenate(column) for column in zip(*batches, strict=True)]
    return tf.nest.pack_sequence_as(dataset.element_spec, columns)


def _stacked(part: Part) -> Any:
    try:
        return stack_elements(part.elements)
    except tf.errors.InvalidArgumentError:
        raise RefusalError(
            "What a zip gives as partners must have one size: it is held in arrays.",
            received="a shuffled data set in a zip, whose elements have several sizes",
            advice="Resize or pad them before the zip.",
        ) from None


def _length(arrays: Any) -> int:
    return int(tf.nest.flatten(arrays)[0].shape[0])
