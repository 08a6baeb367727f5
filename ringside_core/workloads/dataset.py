"""A tf.data.Dataset as its author made it, taken apart into what Ringside's pipeline needs.

What is the same at every reading is read once, and kept. What draws random numbers is done anew for
each example in each epoch. Shuffling, batching and repeating are Ringside's own work, so that every
backend gets the same batches.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ringside_core.keras import tf
from ringside_core.specs import RefusalError
from ringside_core.workloads.augment import Augment, check_tied
from ringside_core.workloads.by_row import can_go_by_row
from ringside_core.workloads.dataset_checks import check_apart, check_batches, check_read_again
from ringside_core.workloads.dataset_layers import (
    MAPS,
    Layers,
    batches,
    draws,
    flat_zip,
    in_single_elements,
    is_cut,
    is_loose,
    outer_layers,
)
from ringside_core.workloads.files import is_seeded, seeds
from ringside_core.workloads.functions import called, joined, one_after_another, rewritten
from ringside_core.workloads.padding import longest, padding_of, told_sizes
from ringside_core.workloads.pairs import (
    Part,
    Partners,
    check_drawn_once,
    drawn_behind,
    last_drawn,
    unzipped,
)

# What is said of a data set whose epochs are passes over it.
REPEAT_TOLD = "its repeat() is left away: --epochs says how often"


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
        drops_rest: whether the author's batches leave out a short last one.
        said: what is done otherwise than the author wrote it, one sentence each.
    """

    fixed: Any
    raw: Any
    decode: Callable[..., Any] | None = None
    augment: Augment | None = None
    shuffled: bool = False
    batch_size: int | None = None
    endless: bool = False
    drops_rest: bool = False
    said: tuple[str, ...] = ()


def take_apart(dataset: Any, *, seed: int = 0) -> TakenApart:
    """Take a data set apart.

    Args:
        dataset: as its author made it.
        seed: of what is drawn once and cached.

    Raises:
        RefusalError: it differs from reading to reading in a way that belongs to no example.
    """
    return _taken_apart(outer_layers(dataset), seed)


def _taken_apart(found: Layers, seed: int) -> TakenApart:
    _unzip(found, seed)
    check_batches(found.inner)
    _pad(found)
    _freeze(found, seed)
    return _taken(found)


def _taken(found: Layers) -> TakenApart:
    drawing = [number for number, layer in enumerate(found.layers) if draws(*layer)]
    maps_draw = any(draws(*layer) for layer in found.layers if layer[0] != "partners")
    first = drawing[0] if drawing else len(found.layers)
    sizes = [size for kind, (size, _) in batches(found.layers)]
    if drawing and len(sizes) > 1:
        raise RefusalError(
            "What draws random numbers must be mapped over examples, or over batches of them.",
            received="batches of batches",
            advice="Draw before the first batch() in a data set of its own, or after the last one.",
        )
    # How many there are does not depend on what is drawn.
    later = [layer for layer in found.layers[first:] if layer[0] not in MAPS]
    read = [*found.layers[:first], *later]
    fixed = in_single_elements(found.inner, read, goes_on=found.repeated)
    check_read_again(fixed, cut=is_cut(found))
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
        drops_rest=any(drops for _, (_, drops) in batches(found.layers)[-1:]),
        said=_said(found, sizes, drawing=maps_draw),
    )


def _unzip(found: Layers, seed: int) -> None:
    """Let a zip of shuffled data sets be one that draws partners, and its batches be behind it.

    What the last maps of its parts draw is drawn by one map behind it too.

    Raises:
        RefusalError: the data sets of the zip do not fit together.
    """
    zipped = flat_zip(found.inner)
    if zipped is None:
        return
    outer = [outer_layers(one) for one in zipped._inputs()]
    check_drawn_once(outer)
    drawn = [last_drawn(part) for part in outer]
    loose = is_loose(outer)
    if not loose and not any(drawn):
        return
    if loose and all(part.shuffled for part in outer):
        if is_cut(found):
            return  # other elements each time
        found.shuffles.append(zipped)
    parts = [_part(one, order, seed) for one, order in zip(outer, _orders(outer), strict=True)]
    found.said += dict.fromkeys(one for part in outer for one in part.said)
    found.inner, partners = unzipped(zipped, parts)
    if all(part.endless for part in parts):
        if is_cut(found):
            found.inner = found.inner.repeat()
        else:
            found.repeated = True
    if parts[0].batch is not None:
        found.layers.insert(0, ("batch", parts[0].batch))
    if any(drawn):
        found.layers.insert(0, ("map", drawn_behind(zipped, parts, drawn)))
    if partners is not None:
        found.layers.insert(0, ("partners", partners))
        found.said.append("what its zip gives as partners is drawn anew in each epoch")


def _part(found: Layers, order: Any, seed: int) -> Part:
    taken = _taken_apart(found, seed)
    if taken.augment is not None:
        raise RefusalError(
            "What a zip pairs must not draw random numbers itself, but in its last maps.",
            received="a map that draws before a filter, take, repeat, padded_batch or map of "
            "batches, or a zip with a map, shuffle or batch behind it",
            advice="Do it after the outer zip.",
        )
    drops = any(drops for _, (_, drops) in batches(found.layers))
    batch = None if taken.batch_size is None else (taken.batch_size, drops)
    return Part(taken.fixed, order, taken.endless, batch)


def _orders(parts: Sequence[Layers]) -> list[Any]:
    """What tells the orders of some data sets apart; None: nothing shuffles this one.

    Two shuffles of one seed and buffer give one order. A shuffle that two data sets share gives
    each its own, seeded or not (seen on 2.21).
    """
    shuffles = [id(one) for part in parts for one in part.shuffles]

    def order(one: Any) -> Any:
        alone = shuffles.count(id(one)) == 1
        return seeds(one) if alone and is_seeded(one) else object()

    return [tuple(map(order, part.shuffles)) or None for part in parts]


def _pad(found: Layers) -> None:
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
            if any(draws(*layer) for layer in before):
                raise RefusalError(
                    "How long examples become must not depend on what is drawn at random.",
                    received="padded_batch without all sizes, after a map that draws",
                    advice="Tell it the sizes: padded_shapes=([40], []).",
                )
            unknown = [(size < 0).any() for size in sizes]
            sizes = longest(in_single_elements(found.inner, before), sizes)
            shown = [str(size.tolist()) for size, one in zip(sizes, unknown, strict=True) if one]
            found.said.append(
                f"its padded_batch pads to the longest example of all, {' and '.join(shown)}, not "
                "of each batch: a model that masks the padding computes the same"
            )
        found.layers[number] = ("map", padding_of(dataset, sizes))


def _freeze(found: Layers, seed: int) -> None:
    """Make what is within the outermost cache a part of the inner data set.

    What is drawn there the author wants once: it is that of epoch 0, with a seed of its own.
    """
    caches = [number for number, (kind, _) in enumerate(found.layers) if kind == "cache"]
    if not caches:
        return
    inside = [layer for layer in found.layers[: caches[-1]] if layer[0] != "cache"]
    outside = found.layers[caches[-1] + 1 :]
    if not any(draws(*layer) for layer in inside):
        found.layers = [*inside, *outside]
        return
    parts = _taken(Layers(found.inner, inside))
    assert parts.augment is not None
    once = partial(parts.augment.element, seed, 0)
    found.inner = parts.fixed.enumerate().map(
        lambda number, *element: once(number, joined(element)),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    found.layers = [*batches(inside)[-1:], *outside]


def _undecoded(
    inner: Any, layers: Sequence[tuple[str, Any]], fixed: Any
) -> tuple[Any, Callable[..., Any] | None]:
    """The elements of `fixed` before their last maps, and these maps as one function.

    So a shuffle holds files' records, not images, and a reader decodes only what it keeps. A map
    over batches stays, and so does one before what leaves elements out.
    """
    kinds = [kind for kind, _ in layers]
    stay = [
        n
        for n, k in enumerate(kinds)
        if k in ("filter", "ignore_errors") or (k == "map" and "batch" in kinds[:n])
    ]
    later = [n for n, k in enumerate(kinds) if k == "map" and n > max(stay, default=-1)]
    first = [one for n, one in enumerate(layers) if n not in later]
    while first and first[-1][0] == "batch":  # before its map an element may have any size
        first.pop()
    if not later or batches(first):
        return fixed, None
    raw = in_single_elements(inner, first)
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
            check_apart(function, one_after_another(*functions), fixed)
        functions.append(partial(_of_one, function) if over_batches else function)
    of_one = one_after_another(*functions)
    check_tied(of_one, fixed.element_spec)
    return Augment(of_one, together if by_row else None, partners)


def _of_one(function: Callable[..., Any], *element: Any) -> Any:
    """A function over batches, for a single element."""
    batch = tf.nest.map_structure(lambda one: tf.expand_dims(one, 0), joined(element))
    return tf.nest.map_structure(lambda one: one[0], called(function, batch))


def _said(found: Layers, sizes: Sequence[int], *, drawing: bool) -> tuple[str, ...]:
    said = [*found.said]
    if sizes:
        said.append(f"its batches of {sizes[-1]} are taken apart: --global-batch says the size")
    if found.repeated:
        said.append(REPEAT_TOLD)
    if found.shuffled:
        kept = ", where its cache would keep one" if found.caches_order else ""
        said.append(f"its shuffle is a new order of all examples in each epoch{kept}")
    else:
        said.append("its order is kept in each epoch, as nothing shuffles it anew")
    if drawing:
        said.append("random numbers are drawn anew for each example in each epoch")
    return tuple(said)
