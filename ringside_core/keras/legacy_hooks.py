"""What legacy Keras (tf-keras 2.21) does differently within a step on a part of a global batch.

Changed here, each only within a step (`part.within`):

- `Optimizer.aggregate_gradients`, of new and of legacy optimizers: gradients × share are summed.
- `Loss.__call__`: means over the own rows. `Loss._get_reduction`: also outside of a step, because
  an author may call a loss in a strategy's scope.
- `Mean.update_state`, `Sum.update_state`: a single number counts by the share.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from ringside_core.keras.part import Part, mean_over_own_rows, shared, update, within
from ringside_core.keras.tensorflow import tf

_MEAN = tf.keras.losses.Reduction.SUM_OVER_BATCH_SIZE


def _aggregate(part: Part, upstream: Callable[..., Any], optimizer: Any, pairs: Any) -> Any:
    pairs = list(pairs)
    gradients, variables = [g for g, _ in pairs], [v for _, v in pairs]
    summed = shared(part, gradients, variables, partial(upstream, optimizer))
    return list(zip(summed, variables, strict=True))


def _reduction(loss: Any) -> Any:
    return _MEAN if loss.reduction == tf.keras.losses.Reduction.AUTO else loss.reduction


def _change_keras() -> None:
    within(tf.keras.optimizers.Optimizer, "aggregate_gradients", _aggregate)
    within(tf.keras.optimizers.legacy.Optimizer, "_aggregate_gradients", _aggregate)
    within(tf.keras.losses.Loss, "__call__", mean_over_own_rows)
    tf.keras.losses.Loss._get_reduction = _reduction
    for kind in (tf.keras.metrics.Mean, tf.keras.metrics.Sum):
        within(kind, "update_state", update)


_change_keras()
