"""The outer layers of a tf.data.Dataset: taken off, and put on again in single elements.

Names with an underscore are tf.data's own: it has no public way to see how a data set was made.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ringside_core.keras import tf
from ringside_core.workloads.files import in_order, is_seeded, reshuffles, shuffled_again
from ringside_core.workloads.padding import told_sizes
from ringside_core.workloads.randomness import random_operations

MAPS = ("map", "filter", "partners")
_MAPS_OF_TENSORFLOW = ("_MapDataset", "_ParallelMapDataset")
_WITHOUT_EFFECT = (
    "_AssertCardinalityDataset",
    "_OptionsDataset",
    "_PrefetchDataset",
)


@dataclass
class Layers:
    """The outer layers of a data set, from the inside to the outside, and what is within them.

    A layer is its kind and what it does it with: a map its function, the others a number. What a
    `padded_batch` does to single elements is a map, once `take_apart` knows its sizes; before, it
    is what `padded_batch` made.
    """

    inner: Any
    layers: list[tuple[str, Any]] = field(default_factory=list)
    shuffles: list[Any] = field(default_factory=list)
    repeated: bool = False
    caches_order: bool = False  # a cache behind a shuffle keeps the order of the first epoch
    said: list[str] = field(default_factory=list)

    @property
    def shuffled(self) -> bool:
        """Whether its author asked for another order in each epoch."""
        return bool(self.shuffles)

    def shuffled_by(self, shuffles: Sequence[Any]) -> None:
        """Note shuffles that stand within all layers so far."""
        if shuffles and not self.shuffles:
            self.caches_order = any(kind == "cache" for kind, _ in self.layers)
        self.shuffles += shuffles


def outer_layers(dataset: Any) -> Layers:
    """Take off what can be put on again, in single elements or by Ringside's own pipeline."""
    found = Layers(dataset)
    while (layer := _layer(found, type(found.inner).__name__)) is not None:
        found.layers += layer
        found.inner = found.inner._input_dataset
    found.layers.reverse()
    read = in_order(found.inner, shuffles=not is_cut(found))
    found.inner = read.dataset
    found.said += read.said if read.shuffles or not found.shuffled else ()
    found.shuffled_by(read.shuffles)
    found.repeated = found.repeated or read.repeated
    return found


def is_cut(found: Layers) -> bool:
    """Whether it is a part: of what is shuffled, other examples each time; else one with an end."""
    return any(kind in ("take", "skip") for kind, _ in found.layers)


def _layer(found: Layers, kind: str) -> list[tuple[str, Any]] | None:
    """The outermost layer of what is left, if it is to be kept; None: it cannot be taken off."""
    inner = found.inner
    if kind in _MAPS_OF_TENSORFLOW:
        return [("map", inner._map_func)]
    if kind in ("_BatchDataset", "_ParallelBatchDataset"):
        return [("batch", (int(inner._batch_size), bool(inner._drop_remainder)))]
    if kind == "_PaddedBatchDataset" and all(size is not None for size in told_sizes(inner)):
        batch = ("batch", (int(inner._batch_size), bool(inner._drop_remainder)))
        return [batch, ("pad", inner)]
    if kind == "CacheDataset":
        return [("cache", None)]
    if kind == "_IgnoreErrorsDataset":
        return [("ignore_errors", False)]
    if kind == "_FilterDataset":
        return [("filter", inner._predicate)]
    if kind in ("_TakeDataset", "_SkipDataset"):
        return [(kind[1:5].lower(), int(inner._count))]
    cut = is_cut(found)
    if kind == "_RepeatDataset":
        times = int(inner._count)
        if times != tf.data.INFINITE_CARDINALITY or cut:
            return [("repeat", times)]
        found.repeated = True
        return []
    if reshuffles(inner) and not cut:
        found.shuffled_by([inner])
        return []
    if kind == "_ShuffleDataset" and not reshuffles(inner) and is_seeded(inner):
        return [("shuffle", inner)] if _over_zip(inner) else None
    return [] if kind in _WITHOUT_EFFECT else None


def flat_zip(dataset: Any) -> Any:
    """The zip that a data set is, of data sets that are none themselves; None: it is none."""
    while type(dataset).__name__ in _WITHOUT_EFFECT:
        dataset = dataset._input_dataset
    if type(dataset).__name__ != "_ZipDataset":
        return None
    inner = [flat_zip(one) for one in dataset._inputs()]
    if not any(one is not None for one in inner):
        return dataset
    flat = [
        whole if one is None else one._datasets
        for one, whole in zip(inner, dataset._inputs(), strict=True)
    ]
    return tf.data.Dataset.zip(tf.nest.pack_sequence_as(dataset._datasets, flat))


def _over_zip(dataset: Any) -> bool:
    """Whether it is made of a zip that is taken apart."""
    while hasattr(dataset, "_input_dataset"):
        dataset = dataset._input_dataset
    return type(dataset).__name__ == "_ZipDataset" and is_loose(
        [outer_layers(one) for one in dataset._inputs()]
    )


def is_loose(parts: Sequence[Layers]) -> bool:
    """Whether a zip of these parts must be taken apart: what it pairs is of the author's order."""
    return any(part.shuffled or batches(part.layers) for part in parts)


def batches(layers: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The layers that make batches: ("batch", (size, whether a short last one is dropped))."""
    return [layer for layer in layers if layer[0] == "batch"]


def draws(kind: str, what: Any) -> bool:
    """Whether a layer draws random numbers anew in each epoch."""
    return kind == "partners" or (kind in MAPS and bool(random_operations([what.function])))


def in_single_elements(
    inner: Any, layers: Sequence[tuple[str, Any]], *, goes_on: bool = False
) -> Any:
    """The inner data set with some layers put on again, without the last batches.

    Where batches go on over the end of a pass, none is short and nothing is left over: so a map
    that needs whole batches gets one that is filled up, and the filling is left away.
    """
    made, batched, count = inner, False, -1
    for number, (kind, what) in enumerate(layers):
        if kind == "map":
            made = made.map(what._func, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        elif kind == "filter":
            made = made.filter(what._func)
        elif kind == "shuffle":
            made = shuffled_again(made, what)
        elif kind == "batch":
            size, drops = what
            # Of the last batches a short one is trained on too, unless a map needs whole ones.
            behind = {kind for kind, _ in layers[number + 1 :]}
            drops = drops and bool(behind & {"batch", "map"})
            if drops and goes_on and behind == {"map"}:
                count = int(made.reduce(np.int64(0), lambda count, *_: count + 1))
                made = made.repeat().take(-(-count // size) * size)
            made, batched = made.batch(size, drop_remainder=drops), True
        else:
            made = getattr(made, kind)(what)
    return made.unbatch().take(count) if batched else made
