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
from ringside_core.specs import RefusalError
from trainers.results import share_of_sums

_upstream = tf.GradientTape.gradient
_loss = tf.keras.losses.Loss.__call__
_here = threading.local()  # `noted`: what this thread's step was seen to sum
_FEW, _TIMES = 2, 4
_SAME = 1e-4  # of a gradient: a step that draws nothing gives it again


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


Gradients = Mapping[int, list[Any]]


def are_sums(gradients: Callable[[Any, float], Gradients], data: Any) -> bool:
    """Whether what a step sums is undivided, so that its gradients grow with the batch.

    A few examples are taken once, and several times over. Divided by the number of times, sums give
    the same gradients again; left as they are, means do. Where a step draws random numbers, neither
    is the same, and the size decides.

    Args:
        gradients: a batch, and by what its sums are divided (1: they stay) → what the step hands
            to each optimizer, from the same state.
        data: a batch.

    Raises:
        RefusalError: the optimizers disagree.
    """
    examples = int(tf.nest.flatten(data)[0].shape[0])
    few = max(_FEW, examples // _TIMES)

    def made(times: int, by: float = 1.0) -> Gradients:
        rows = [number % examples for number in range(few)] * times
        batch = tf.nest.map_structure(partial(tf.gather, indices=rows), data)
        return gradients(batch, by)

    once, again = made(1), made(1)
    left, divided = made(_TIMES), made(_TIMES, by=_TIMES)
    told, drawn = set[bool](), set[bool]()
    for key in once:
        four = once[key], again[key], left[key], divided[key]
        size = _norm(once[key])
        if len({len(one) for one in four}) > 1 or not size:
            continue
        if _apart(once[key], again[key]) > _SAME * size:
            drawn.add(_norm(left[key]) > size * _TIMES**0.25)  # of sums of noise it is the root
        elif _apart(left[key], divided[key]) > _SAME * size:  # else this one gets no such sum
            told.add(_apart(divided[key], once[key]) < _apart(left[key], once[key]))
    if len(told) > 1:
        raise RefusalError(
            "What a step sums is divided by the size of its batch, or nothing is.",
            received="gradients of an optimizer that grow with the batch, and of another that do "
            "not",
            advice="Write tf.reduce_mean(loss) in it.",
        )
    return True in told | drawn


def _apart(some: list[Any], others: list[Any]) -> float:
    if any(one.shape != other.shape for one, other in zip(some, others, strict=True)):
        return float("inf")
    return _norm([one - other for one, other in zip(some, others, strict=True)])


def _norm(tensors: list[Any]) -> float:
    return float(tf.linalg.global_norm([tf.cast(one, tf.float64) for one in tensors]))
