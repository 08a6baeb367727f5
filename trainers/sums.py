"""Sums in a step of the author's own: a loss for each example at a tape, or reduction="sum".

They train by the sum over the whole batch, as without replicas. The gradient of a replica counts by
its share of the examples (trainers/own_step.py), which is right for means. So a sum is divided by
that share. An author may divide it himself, by the size of his batch: whether a step's gradients
grow with the batch is seen by a trial.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

from ringside_core.keras import flat, raw, tf
from trainers.results import share_of_sums

_upstream = tf.GradientTape.gradient
_loss = tf.keras.losses.Loss.__call__
_here = threading.local()  # `noted`: what this thread's step was seen to sum
_FEW, _TIMES = 2, 4


@wraps(_upstream)
def _gradient(
    tape: Any, target: Any, sources: Any, output_gradients: Any = None, *args: Any, **kwargs: Any
) -> Any:
    if output_gradients is None and any(map(_several, flat(target))) and _trains(sources):
        _note("a loss for each example at its tape")
        share = share_of_sums()
        if share is not None:
            output_gradients = tf.nest.map_structure(partial(_of_whole, share), target)
    return _upstream(tape, target, sources, output_gradients, *args, **kwargs)


tf.GradientTape.gradient = _gradient


@wraps(_loss)
def _loss_of_whole(loss: Any, *args: Any, **kwargs: Any) -> Any:
    value = _loss(loss, *args, **kwargs)
    if loss.reduction != "sum":
        return value
    _note("a loss with reduction='sum'")
    share = share_of_sums()
    return value if share is None else tf.math.divide_no_nan(value, tf.cast(share, value.dtype))


tf.keras.losses.Loss.__call__ = _loss_of_whole


def _of_whole(share: Any, target: Any) -> Any:
    ones = tf.ones_like(target)
    return tf.math.divide_no_nan(ones, tf.cast(share, ones.dtype)) if _several(target) else ones


def _trains(sources: Any) -> bool:
    """Whether a gradient is by weights: a penalty's own by its inputs is the author's affair."""
    return any(isinstance(raw(one), tf.Variable) for one in flat(sources))


def _several(target: Any) -> bool:
    return bool(target.shape.rank) and target.shape[0] != 1


def _note(what: str) -> None:
    getattr(_here, "noted", []).append(what)


@contextmanager
def noting_sums() -> Iterator[list[str]]:
    """Note what a step sums that runs within this block, in this thread."""
    _here.noted = noted = list[str]()
    try:
        yield noted
    finally:
        del _here.noted


def grows(gradients: Callable[[Any], Mapping[int, list[Any]]], data: Any) -> bool:
    """Whether the gradients of an optimizer grow with the batch, as those of a sum do.

    Args:
        gradients: a batch → what the step hands to each optimizer, from the same weights.
        data: a batch; a few of its examples are repeated.
    """
    examples = int(tf.nest.flatten(data)[0].shape[0])
    few = max(_FEW, examples // _TIMES)
    sizes = []
    for times in (1, _TIMES):
        rows = [number % examples for number in range(few)] * times
        made = gradients(tf.nest.map_structure(partial(tf.gather, indices=rows), data))
        sizes.append({key: _norm(handed) for key, handed in made.items()})
    once, often = sizes
    # Those of a mean stay, those of a sum are so many times as large.
    return any(size > once.get(key, 0.0) * _TIMES**0.5 for key, size in often.items())


def _norm(tensors: list[Any]) -> float:
    return float(tf.linalg.global_norm([tf.cast(one, tf.float64) for one in tensors]))
