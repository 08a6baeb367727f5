"""What a tf.data.Dataset must not do: differ when read again, or mix the examples of a batch."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ringside_core.keras import tf
from ringside_core.specs import RefusalError
from ringside_core.workloads.files import reshuffles
from ringside_core.workloads.functions import called, joined
from ringside_core.workloads.randomness import (
    PYTHON,
    SeededStream,
    drawing_from,
    nodes,
    operations,
    random_operations,
)

# Elements that are read twice, where something could make them differ.
_READ_TWICE = 64
# A change of these examples must not change what is made of the first of a batch.
_TRIAL_BATCH, _TRIAL_ROWS = 8, (0, 3, 5, 7)


def check_batches(inner: Any) -> None:
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
        check_batches(one)


def check_read_again(fixed: Any, *, cut: bool) -> None:
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
        else "a shuffle before a take or skip: what is held out in one epoch is trained in the next"
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


def check_apart(function: Callable[..., Any], before: Callable[..., Any], fixed: Any) -> None:
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


def _all_within(dataset: Any) -> list[Any]:
    """The data set and all that it is made of."""
    return [dataset, *(inner for one in dataset._inputs() for inner in _all_within(one))]


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
