"""What legacy Keras (tf-keras 2.21) does differently within a step on a part of a global batch.

Changed here, each only within a step (`part.within`):

- `Optimizer.aggregate_gradients`, of new and of legacy optimizers: gradients × share are summed.
- `apply_gradients` of new ones and their loss scales: of several passes, the last one updates.
- `Loss.__call__`: means over the own rows; `apply_valid_mask`: over the steps that masks leave, of
  all replicas' rows. `Loss._get_reduction`: also outside of a step, because
  an author may call a loss in a strategy's scope.
- `Mean.update_state`: a single number counts by the share; `Sum.update_state` refuses one.

And everywhere:

- In float64 every layer computes so, also one whose author chose another type: certificates do.
- A built model with a vocabulary, a table that no strategy holds, can be compiled in a scope.
- Under central storage one replica sets the present rate of a schedule.
"""

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

from tf_keras.src.engine.base_layer_utils import TrackableWeightHandler
from tf_keras.src.mixed_precision.loss_scale_optimizer import (
    LossScaleOptimizer,
    LossScaleOptimizerV3,
)
from tf_keras.src.utils import losses_utils

from ringside_core.keras.part import (
    Part,
    mask_of_all,
    mean_over_own_rows,
    postponed,
    shared,
    update,
    update_sum,
    wide_in_float64,
    within,
)
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


def _valid(
    part: Part, upstream: Callable[..., Any], losses: Any, sw: Any, mask: Any, reduction: Any
) -> Any:
    if mask is None or reduction not in (tf.keras.losses.Reduction.AUTO, _MEAN):
        return upstream(losses, sw, mask, reduction)
    return losses_utils.apply_mask(losses, sw, mask_of_all(part, mask, losses.dtype))


def _reduction(loss: Any) -> Any:
    return _MEAN if loss.reduction == tf.keras.losses.Reduction.AUTO else loss.reduction


def _with_rate_of_one_replica(upstream: Any) -> Any:
    @functools.wraps(upstream)
    def built(optimizer: Any, learning_rate: Any) -> Any:
        rate, here = upstream(optimizer, learning_rate), tf.distribute.get_strategy()
        central = isinstance(here, tf.distribute.experimental.CentralStorageStrategy)
        if central and hasattr(optimizer, "_current_learning_rate"):
            with tf.init_scope():
                optimizer._current_learning_rate = tf.Variable(
                    optimizer._current_learning_rate.read_value(),
                    name="current_learning_rate",
                    trainable=False,
                    aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
                )
        return rate

    return built


def _change_keras() -> None:
    policy, optimizer = tf.keras.mixed_precision.Policy, tf.keras.optimizers.Optimizer
    policy.__init__ = wide_in_float64(policy.__init__)
    optimizer._build_learning_rate = _with_rate_of_one_replica(optimizer._build_learning_rate)
    TrackableWeightHandler._distribute_strategy = property(
        lambda self: tf.distribute.get_strategy(), lambda self, strategy: None
    )
    within(tf.keras.optimizers.Optimizer, "aggregate_gradients", _aggregate)
    within(tf.keras.optimizers.legacy.Optimizer, "_aggregate_gradients", _aggregate)
    for kind in (tf.keras.optimizers.Optimizer, LossScaleOptimizerV3):
        within(kind, "apply_gradients", _apply)
    for kind in (tf.keras.optimizers.legacy.Optimizer, LossScaleOptimizer):
        within(kind, "apply_gradients", _apply_legacy)
    within(tf.keras.losses.Loss, "__call__", mean_over_own_rows)
    within(losses_utils, "apply_valid_mask", _valid)
    tf.keras.losses.Loss._get_reduction = _reduction
    within(tf.keras.metrics.Mean, "update_state", update)
    within(tf.keras.metrics.Sum, "update_state", update_sum)


_change_keras()
