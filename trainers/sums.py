"""Sums in a step of the author's own: a loss for each example at a tape, or reduction="sum".

They train by the sum over the whole batch, as without replicas. The gradient of a replica counts by
its share of the examples (trainers/own_step.py), which is right for means. So a sum is divided by
that share.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

from ringside_core.keras import flat, raw, tf
from ringside_core.specs import RefusalError
from trainers.results import share_of_batch

_upstream = tf.GradientTape.gradient
_loss = tf.keras.losses.Loss.__call__


@wraps(_upstream)
def _gradient(
    tape: Any, target: Any, sources: Any, output_gradients: Any = None, *args: Any, **kwargs: Any
) -> Any:
    share = share_of_batch()
    sums = any(map(_several, flat(target))) and _trains(sources)
    if share is not None and output_gradients is None and sums:
        output_gradients = tf.nest.map_structure(partial(_of_whole, share), target)
    return _upstream(tape, target, sources, output_gradients, *args, **kwargs)


tf.GradientTape.gradient = _gradient


@wraps(_loss)
def _loss_of_whole(loss: Any, *args: Any, **kwargs: Any) -> Any:
    value, share = _loss(loss, *args, **kwargs), share_of_batch()
    if share is None or loss.reduction != "sum":
        return value
    return tf.math.divide_no_nan(value, tf.cast(share, value.dtype))


tf.keras.losses.Loss.__call__ = _loss_of_whole


def _of_whole(share: Any, target: Any) -> Any:
    ones = tf.ones_like(target)
    return tf.math.divide_no_nan(ones, tf.cast(share, ones.dtype)) if _several(target) else ones


def _trains(sources: Any) -> bool:
    """Whether a gradient is by weights: a penalty's own by its inputs is the author's affair."""
    return any(isinstance(raw(one), tf.Variable) for one in flat(sources))


def _several(target: Any) -> bool:
    return bool(target.shape.rank) and target.shape[0] != 1


@contextmanager
def only_of_examples(step: str, examples: int) -> Iterator[list[Any]]:
    """Within this block, refuse a loss of several numbers that are not those of the examples.

    Args:
        step: how messages name the step.
        examples: number of examples of the batch on which it runs.

    Yields:
        The shapes of the losses for each example, as they come to a tape.
    """
    patched = tf.GradientTape.gradient
    seen: list[Any] = []

    @wraps(patched)
    def gradient(
        tape: Any, target: Any, sources: Any, output_gradients: Any = None, *args: Any, **more: Any
    ) -> Any:
        if output_gradients is None and _trains(sources):
            several = [
                one for one in flat(target) if (one.shape.rank and examples == 1) or _several(one)
            ]
            seen.extend(one.shape for one in several)
            # Of one example it cannot be told from a mean with an axis too many.
            if any(shape[0] != examples or examples == 1 for shape in seen):
                raise RefusalError(
                    "A loss of several numbers must have one, or a row, for each example, and a "
                    "replica must have two examples.",
                    received=f"{step}, which gives its tape a loss of shape {seen[-1]} for "
                    f"{examples} example{'s' * (examples > 1)}",
                    advice="Write tf.reduce_mean(loss) in it.",
                )
        return patched(tape, target, sources, output_gradients, *args, **more)

    tf.GradientTape.gradient = gradient
    try:
        yield seen
    finally:
        tf.GradientTape.gradient = patched
