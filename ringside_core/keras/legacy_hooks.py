"""What legacy Keras (tf-keras 2.21) does differently within a step on a part of a global batch.

Changed here, each only within a step (`part.within`):

- `Optimizer.aggregate_gradients`, of new and of legacy optimizers: gradients × share are summed.
- `apply_gradients` of new ones and their loss scales: of several passes, the last one updates.
- `Loss.__call__`: means over the own rows. `Loss._get_reduction`: also outside of a step, because
  an author may call a loss in a strategy's scope.
- `Mean.update_state`, `Sum.update_state`: a single number counts by the share.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from tf_keras.src.mixed_precision.loss_scale_optimizer import (
    LossScaleOptimizer,
    LossScaleOptimizerV3,
)

from ringside_core.keras.part import Part, mean_over_own_rows, postponed, shared, update, within
from ringside_core.keras.tensorflow import tf
from ringside_core.specs import RefusalError

_MEAN = tf.keras.losses.Reduction.SUM_OVER_BATCH_SIZE


def _aggregate(part: Part, upstream: Callable[..., Any], optimizer: Any, pairs: Any) -> Any:
    pairs = list(pairs)
    gradients, variables = [g for g, _ in pairs], [v for _, v in pairs]
    summed = shared(part, gradients, variables, partial(upstream, optimizer))
    return list(zip(summed, variables, strict=True))


def _apply(
    part: Part, upstream: Callable[..., Any], optimizer: Any, pairs: Any, *args: Any, **kwargs: Any
) -> Any:
    pairs = list(pairs)
    if postponed(part, [g for g, _ in pairs], [v for _, v in pairs]):
        return optimizer.iterations
    return upstream(optimizer, pairs, *args, **kwargs)


def _apply_legacy(
    part: Part, upstream: Callable[..., Any], optimizer: Any, *args: Any, **kwargs: Any
) -> Any:
    """Its hooks would change the last pass' gradients only."""
    if not part.last:
        raise RefusalError(
            "Gradient accumulation needs an optimizer of tf.keras.optimizers.",
            received=f"{type(optimizer).__name__} of tf.keras.optimizers.legacy",
            advice="Use the one of that name in tf.keras.optimizers.",
        )
    return upstream(optimizer, *args, **kwargs)


def _reduction(loss: Any) -> Any:
    return _MEAN if loss.reduction == tf.keras.losses.Reduction.AUTO else loss.reduction


def _change_keras() -> None:
    within(tf.keras.optimizers.Optimizer, "aggregate_gradients", _aggregate)
    within(tf.keras.optimizers.legacy.Optimizer, "_aggregate_gradients", _aggregate)
    for kind in (tf.keras.optimizers.Optimizer, LossScaleOptimizerV3):
        within(kind, "apply_gradients", _apply)
    for kind in (tf.keras.optimizers.legacy.Optimizer, LossScaleOptimizer):
        within(kind, "apply_gradients", _apply_legacy)
    within(tf.keras.losses.Loss, "__call__", mean_over_own_rows)
    tf.keras.losses.Loss._get_reduction = _reduction
    for kind in (tf.keras.metrics.Mean, tf.keras.metrics.Sum):
        within(kind, "update_state", update)


_change_keras()
