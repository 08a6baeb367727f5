"""A tf.data.Dataset as its author made it, taken apart into what Ringside's pipeline needs.

What is the same at every reading is read once, and kept. What draws random numbers is done anew for
each example in each epoch. Shuffling, batching and repeating are Ringside's own work, so that every
backend gets the same batches.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ringside_core.keras import tf
from ringside_core.specs import RefusalError
from ringside_core.workloads.augment import Augment, check_tied
from ringside_core.workloads.by_row import can_go_by_row
from ringside_core.workloads.files import in_order, is_seeded, reshuffles, seeds, shuffled_again
from ringside_core.workloads.functions import called, joined, one_after_another, rewritten
from ringside_core.workloads.padding import longest, padding_of, told_sizes
from ringside_core.workloads.pairs import Part, Partners, unzipped
from ringside_core.workloads.randomness import (
    PYTHON,
    SeededStream,
    drawing_from,
    nodes,
    operations,
    random_operations,
)

# What is said of a data set whose epochs are passes over it.
DROP_TOLD = "its drop_remainder is left away: a short last batch is trained on too"
REPEAT_TOLD = "its repeat() is left away: --epochs says how often"
# Elements that are read twice, where something could make them differ.
_READ_TWICE = 64
# A change of these examples must not change what is made of the first of a batch.
_TRIAL_BATCH, _TRIAL_ROWS = 8, (0, 3, 5, 7)
_MAPS = ("map", "filter", "partners")
_MAPS_OF_TENSORFLOW = ("_MapDataset", "_ParallelMapDataset")
_WITHOUT_EFFECT = (
    "_AssertCardinalityDataset",
    "_OptionsDataset",
    "_PrefetchDataset",
)


@dataclass(frozen=True)
class TakenApart:
    """A data set in parts.

    Attributes:
        fixed: single elements, the same at every reading, in the author's order.
        raw: the elements before those of their maps that can be done later, on any of them.
        decode: raw element → element of `fixed`; None: they are the same.
        augment: what draws random numbers; None: nothing does.
        shuffled: whether the author asked for another order in each epoch.
        batch_size: of the author's batches; None: there are none.
        endless: whether the author repeats it without end.
        said: what is done otherwise than the author wrote it, one sentence each.
    """

    fixed: Any
    raw: Any
    decode: Callable[..., Any] | None = None
    augment: Augment | None = None
    shuffled: bool = False
    batch_size: int | None = None
    endless: bool = False
    said: tuple[str, ...] = ()


@dataclass
class _Layers:
    """The outer layers of a data set, from the inside to the outside, and what is within them.

    A layer is its kind and what it does it with: a map its function, the others a number. What a
    `padded_batch` does to single elements is a map, once `_pad` knows its sizes; before, it is what
    `padded_batch` made.
    """

    inner: Any
    layers: list[tuple[str, Any]] = field(default_factory=list)
    shuffles: list[Any] = field(default_factory=list)
    repeated: bool = False
    said: list[str] = field(default_factory=list)

    @property
    def shuffled(self) -> bool:
        """Whether its author asked for another order in each epoch."""
        return bool(self.shuffles)


def take_apart(dataset: Any, *, seed: int = 0) -> TakenApart:
    """Take a data set apart.

    Args:
        dataset: as its author made it.
        seed: of what is drawn once and cached.

    Raises:
        RefusalError: it differs from reading to reading in a way that belongs to no example.
    """
    return _taken_apart(_outer_layers(dataset), seed)


def _taken_apart(found: _Layers, seed: int) -> TakenApart:
    _unzip(found, seed)
    _check_batches(found.inner)
    _pad(found)
    _freeze(found, seed)
    return _taken(found)


def _taken(found: _Layers) -> TakenApart:
    drawing = [number for number, layer in enumerate(found.layers) if _draws(*layer)]
    maps_draw = any(_draws(*layer) for layer in found.layers if layer[0] != "partners")
    first = drawing[0] if drawing else len(found.layers)
    sizes = [size for kind, (size, _) in _batches(found.layers)]
    if drawing and len(sizes) > 1:
        raise RefusalError(
            "What draws random numbers must be mapped over examples, or over batches of them.",
            received="batches of batches",
            advice="Draw before the first batch() in a data set of its own, or after the last one.",
        )
    # How many there are does not depend on what is drawn.
    later = [layer for layer in found.layers[first:] if layer[0] not in _MAPS]
    read = [*found.layers[:first], *later]
    fixed = _in_single_elements(found.inner, read, goes_on=found.repeated)
    _check_read_again(fixed, cut=_cut(found))
    raw, decode = _undecoded(found.inner, read, fixed)
    augment = None
    if drawing:
        batched = any(kind == "batch" for kind, _ in found.layers[:first])
        augment = _augment(found.layers[first:], batched, fixed)
    return TakenApart(
        fixed=fixed,
        raw=raw,
        decode=decode,
        augment=augment,
        shuffled=found.shuffled,
        batch_size=sizes[-1] if sizes else None,
        endless=found.repeated,
        said=_said(found, sizes, drawing=maps_draw),
    )


def _outer_layers(dataset: Any) -> _Layers:
    found = _Layers(dataset)
    while (layer := _layer(found, type(found.inner).__name__)) is not None:
        found.layers += layer
        found.inner = found.inner._input_dataset
    found.layers.reverse()
    read = in_order(found.inner, shuffles=not _cut(found))
    found.inner = read.dataset
    found.said += read.said if read.shuffles or not found.shuffled else ()
    found.shuffles += read.shuffles
    found.repeated = found.repeated or read.repeated
    return found


def _cut(found: _Layers) -> bool:
    """Whether it is a part: of what is shuffled, other examples each time; else one with an end."""
    return any(kind in ("take", "skip") for kind, _ in found.layers)


def _layer(found: _Layers, kind: str) -> list[tuple[str, Any]] | None:
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
    if kind == "_FilterDataset":
        return [("filter", inner._predicate)]
    if kind in ("_TakeDataset", "_SkipDataset"):
        return [(kind[1:5].lower(), int(inner._count))]
    cut = _cut(found)
    if kind == "_RepeatDataset":
        times = int(inner._count)
        if times != tf.data.INFINITE_CARDINALITY or cut:
            return [("repeat", times)]
        found.repeated = True
        return []
    if reshuffles(inner) and not cut:
        found.shuffles.append(inner)
        return []
    if kind == "_ShuffleDataset" and not reshuffles(inner) and is_seeded(inner):
        return [("shuffle", inner)] if _over_zip(inner) else None
    return [] if kind in _WITHOUT_EFFECT else None


def _over_zip(dataset: Any) -> bool:
    """Whether it is made of a zip that is taken apart."""
    while hasattr(dataset, "_input_dataset"):
        dataset = dataset._input_dataset
    return type(dataset).__name__ == "_ZipDataset" and _is_loose(
        [_outer_layers(one) for one in dataset._inputs()]
    )


def _is_loose(parts: Sequence[_Layers]) -> bool:
    return any(part.shuffled or _batches(part.layers) for part in parts)


def _unzip(found: _Layers, seed: int) -> None:
    """Let a zip of shuffled data sets be one that draws partners, and its batches be behind it.

    Raises:
        RefusalError: the data sets of the zip do not fit together.
    """
    zipped = found.inner
    if type(zipped).__name__ != "_ZipDataset":
        return
    outer = [_outer_layers(one) for one in zipped._inputs()]
    if not _is_loose(outer):
        return
    if all(part.shuffled for part in outer):
        if _cut(found):
            return  # other elements each time
        found.shuffles.append(zipped)
    parts = [
        _part(one, order, seed) for one, order in zip(zipped._inputs(), _orders(outer), strict=True)
    ]
    found.said += dict.fromkeys(one for part in outer for one in part.said)
    found.repeated = found.repeated or all(part.endless for part in parts)
    found.inner, partners = unzipped(zipped, parts)
    if parts[0].batch is not None:
        found.layers.insert(0, ("batch", parts[0].batch))
    if partners is not None:
        found.layers.insert(0, ("partners", partners))
        found.said.append("what its zip gives as partners is drawn anew in each epoch")


def _part(dataset: Any, order: Any, seed: int) -> Part:
    found = _outer_layers(dataset)
    taken = _taken_apart(found, seed)
    if taken.augment is not None:
        raise RefusalError(
            "What a zip pairs must not draw random numbers itself.",
            received="a map that draws, or another zip, within a zip of shuffled or batched data",
            advice="Draw in a map after the zip, and zip all data sets at once.",
        )
    drops = any(drops for _, (_, drops) in _batches(found.layers))
    batch = None if taken.batch_size is None else (taken.batch_size, drops)
    return Part(taken.fixed, order, taken.endless, batch)


def _orders(parts: Sequence[_Layers]) -> list[Any]:
    """What tells the orders of some data sets apart; None: nothing shuffles this one.

    Two shuffles of one seed and buffer give one order. A shuffle that two data sets share gives
    each its own, seeded or not (seen on 2.21).
    """
    shuffles = [id(one) for part in parts for one in part.shuffles]

    def order(one: Any) -> Any:
        alone = shuffles.count(id(one)) == 1
        return seeds(one) if alone and is_seeded(one) else object()

    return [tuple(map(order, part.shuffles)) or None for part in parts]


def _pad(found: _Layers) -> None:
    """Let each padding be a map of single elements, to sizes that are told or those of the longest.

    Which examples make a batch is Ringside's own affair, so an example cannot be padded to the
    longest of its author's batch.

    Raises:
        RefusalError: a size is not told, and it may be drawn at random.
    """
    for number, (kind, dataset) in enumerate(found.layers):
        if kind != "pad":
            continue
        sizes = told_sizes(dataset)
        if any((size < 0).any() for size in sizes):
            before = [
                layer
                for layer in found.layers[:number]
                if layer != ("repeat", -1)
                if layer[0] != "cache"
            ]
            if any(_draws(*layer) for layer in before):
                raise RefusalError(
                    "How long examples become must not depend on what is drawn at random.",
                    received="padded_batch without all sizes, after a map that draws",
                    advice="Tell it the sizes: padded_shapes=([40], []).",
                )
            unknown = [(size < 0).any() for size in sizes]
            sizes = longest(_in_single_elements(found.inner, before), sizes)
            shown = [str(size.tolist()) for size, one in zip(sizes, unknown, strict=True) if one]
            found.said.append(
                f"its padded_batch pads to the longest example of all, {' and '.join(shown)}, not "
                "of each batch: a model that masks the padding computes the same"
            )
        found.layers[number] = ("map", padding_of(dataset, sizes))


def _freeze(found: _Layers, seed: int) -> None:
    """Make what is within the outermost cache a part of the inner data set.

    What is drawn there the author wants once: it is that of epoch 0, with a seed of its own.
    """
    caches = [number for number, (kind, _) in enumerate(found.layers) if kind == "cache"]
    if not caches:
        return
    inside = [layer for layer in found.layers[: caches[-1]] if layer[0] != "cache"]
    outside = found.layers[caches[-1] + 1 :]
    if not any(_draws(*layer) for layer in inside):
        found.layers = [*inside, *outside]
        return
    parts = _taken(_Layers(found.inner, inside))
    assert parts.augment is not None
    once = partial(parts.augment.element, seed, 0)
    found.inner = parts.fixed.enumerate().map(
        lambda number, *element: once(number, joined(element)),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    found.layers = [*_batches(inside)[-1:], *outside]


def _batches(layers: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return [layer for layer in layers if layer[0] == "batch"]


def _draws(kind: str, what: Any) -> bool:
    return kind == "partners" or (kind in _MAPS and bool(random_operations([what.function])))


def _in_single_elements(
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


def _undecoded(
    inner: Any, layers: Sequence[tuple[str, Any]], fixed: Any
) -> tuple[Any, Callable[..., Any] | None]:
    """The elements of `fixed` before their last maps, and these maps as one function.

    So a shuffle holds files' records, not images, and a reader decodes only what it keeps. A map
    over batches stays, and so does one before a filter.
    """
    kinds = [kind for kind, _ in layers]
    stay = [
        n for n, k in enumerate(kinds) if k == "filter" or (k == "map" and "batch" in kinds[:n])
    ]
    later = [n for n, k in enumerate(kinds) if k == "map" and n > max(stay, default=-1)]
    first = [one for n, one in enumerate(layers) if n not in later]
    while first and first[-1][0] == "batch":  # before its map an element may have any size
        first.pop()
    if not later or _batches(first):
        return fixed, None
    raw = _in_single_elements(inner, first)
    decode = one_after_another(*(layers[n][1]._func for n in later))
    # tf.data makes one tensor of a list within an element; `decode` alone does not.
    same = raw.map(rewritten(decode)).element_spec == fixed.element_spec
    return (raw, decode) if same else (fixed, None)


def _augment(layers: Sequence[tuple[str, Any]], batched: bool, fixed: Any) -> Augment:
    """The maps among some layers as one.

    A map over batches is called on batches if each example gets the same in all of them, and else
    on each example as a batch of one.

    Raises:
        RefusalError: it mixes the examples of its batch, or examples are dropped by what was drawn,
            or its numbers cannot be tied.
    """
    maps: list[tuple[Callable[..., Any], bool]] = []
    partners: Partners | None = None
    for kind, what in layers:
        if kind == "filter":
            raise RefusalError(
                "How many examples there are must not depend on what is drawn at random.",
                received="a filter after a map that draws",
                advice="Filter before it.",
            )
        batched = batched or kind == "batch"
        if kind == "partners":
            partners = what
            fixed = fixed.enumerate().map(partial(what, 0, 0))
        if kind == "map":
            maps.append((what._func, batched))
    together = one_after_another(*(function for function, _ in maps))
    by_row = (
        partners is None
        and all(over_batches for _, over_batches in maps)
        and can_go_by_row(together, fixed)
    )
    functions: list[Callable[..., Any]] = []
    for function, over_batches in maps:
        # What goes by row was seen to give each example the same in all batches.
        if over_batches and not by_row:
            _check_apart(function, one_after_another(*functions), fixed)
        functions.append(partial(_of_one, function) if over_batches else function)
    of_one = one_after_another(*functions)
    check_tied(of_one, fixed.element_spec)
    return Augment(of_one, together if by_row else None, partners)


def _of_one(function: Callable[..., Any], *element: Any) -> Any:
    """A function over batches, for a single element."""
    batch = tf.nest.map_structure(lambda one: tf.expand_dims(one, 0), joined(element))
    return tf.nest.map_structure(lambda one: one[0], called(function, batch))


def _check_apart(function: Callable[..., Any], before: Callable[..., Any], fixed: Any) -> None:
    """Refuse a random function over batches that gives an example something of the others.

    Raises:
        RefusalError: one of a batch comes out otherwise beside other examples.
    """
    examples = fixed.repeat().take(2 * _TRIAL_BATCH)

    def made_of(row: int, others: Any, number: int) -> list[Any]:
        def made(*batch: Any) -> Any:
            with drawing_from(SeededStream(tf.constant([number, 0]))):
                return called(function, joined(batch))

        before_it, behind_it = others.take(row), others.skip(row)
        chosen = before_it.concatenate(examples.take(1)).concatenate(behind_it)

        def drawn(*element: Any) -> Any:
            with drawing_from(SeededStream(tf.constant([number, 1]))):
                return called(before, joined(element))

        batch = next(iter(chosen.map(drawn).batch(_TRIAL_BATCH).map(made)))
        return [one[row].numpy() for one in tf.nest.flatten(batch)]

    for number, row in enumerate(_TRIAL_ROWS):
        here = made_of(row, examples.skip(1).take(_TRIAL_BATCH - 1), number)
        there = made_of(row, examples.skip(_TRIAL_BATCH).take(_TRIAL_BATCH - 1), number)
        if not all(np.array_equal(a, b) for a, b in zip(here, there, strict=True)):
            raise RefusalError(
                "What the data draw at random for an example must not depend on its batch: "
                "replicas hold other batches.",
                received=f"{_name(function)}, which mixes the examples of a batch",
                advice="Do it in the model, where a certificate can judge it, or in pairs of "
                "examples made by a seed of your own.",
            )


def _check_read_again(fixed: Any, *, cut: bool) -> None:
    """Refuse a data set that differs when it is read again.

    Args:
        fixed: the data set.
        cut: whether a part of it is taken.

    Raises:
        RefusalError: chance is left in it, or Python code draws.
    """
    functions = [wrapped.function for one in _all_within(fixed) for wrapped in one._functions()]
    left = operations(functions)
    kinds = {type(one).__name__ for one in _all_within(fixed)}
    # Two readings may have the same order by chance, of few files, say.
    anew = any(map(reshuffles, _all_within(fixed))) or any(
        node.op.startswith("Shuffle") and node.attr["reshuffle_each_iteration"].b
        for node in nodes(functions)
    )
    shuffles = "_ShuffleDataset" in kinds or any(op.startswith("Shuffle") for op in left)
    random = bool(random_operations(functions)) or "_RandomDataset" in kinds
    python = any(op in PYTHON for op in left)
    if not (shuffles or random or python):
        return
    # A shuffle of files may show in later elements only.
    several = fixed if shuffles else fixed.take(_READ_TWICE)
    first, second = (list(several.as_numpy_iterator()) for _ in range(2))
    same = len(first) == len(second) and all(
        np.array_equal(a, b)
        for one, other in zip(first, second, strict=True)
        for a, b in zip(tf.nest.flatten(one), tf.nest.flatten(other), strict=True)
    )
    if same and not random and not anew:
        return
    cause = (
        "random numbers within a flat_map, interleave, filter or zip"
        if random
        else "a shuffle before a take or skip, which picks other elements each time"
        if shuffles and cut
        else "a shuffle within a zip, or in the function of a flat_map or interleave"
        if shuffles
        else "Python code (from_generator, numpy_function) that draws"
    )
    raise RefusalError(
        "The data must be the same when they are read again; only what a `map` of single elements "
        "draws with TensorFlow may differ.",
        received=cause,
        advice="Draw in a `map` after it, or keep its order: shuffle(n, seed=1, "
        "reshuffle_each_iteration=False), list_files(pattern, shuffle=False).",
    )


def _check_batches(inner: Any) -> None:
    """Refuse batches within what cannot be taken off: each of them would be an example.

    Raises:
        RefusalError: see above.
    """
    kind = type(inner).__name__
    if any(word in kind for word in ("Unbatch", "FlatMap", "Interleave", "Window", "Group")):
        return
    if "Batch" in kind or "Ragged" in kind:
        raise RefusalError(
            "Ringside makes the batches: those of a tf.data.Dataset must be its last layers, but "
            "for map, take, skip, filter, repeat, shuffle, cache and prefetch.",
            received=f"{kind.strip('_')} within another layer",
            advice="Put batch() last.",
        )
    for one in inner._inputs():
        _check_batches(one)


def _all_within(dataset: Any) -> list[Any]:
    """The data set and all that it is made of."""
    return [dataset, *(inner for one in dataset._inputs() for inner in _all_within(one))]


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _said(found: _Layers, sizes: Sequence[int], *, drawing: bool) -> tuple[str, ...]:
    said = [*found.said]
    if sizes:
        said.append(f"its batches of {sizes[-1]} are taken apart: --global-batch says the size")
    if any(drops for _, (_, drops) in _batches(found.layers)):
        said.append(DROP_TOLD)
    if found.repeated:
        said.append(REPEAT_TOLD)
    if found.shuffled:
        said.append("its shuffle is a new order of all examples in each epoch")
    else:
        said.append("its order is kept in each epoch, as nothing shuffles it")
    if drawing:
        said.append("random numbers are drawn anew for each example in each epoch")
    return tuple(said)
