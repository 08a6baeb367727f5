"""What Keras 3 (3.15) does differently within a step on a part of a global batch.

Changed here, each only within a step (`part.within`):

- `Optimizer.apply`, `LossScaleOptimizer.apply`, `_all_reduce_sum_gradients`: gradients × share are
  summed before they are clipped and looked at for an overflow; Keras sums them after that. Of
  several passes, the last one updates.
- `Loss.__call__`: a mean over the own rows.
- `Mean.update_state`, `Sum.update_state`: a single number counts by the share.
"""

import threading
from collections.abc import Callable
from typing import Any

import keras

from ringside_core.keras.part import Part, mean_over_own_rows, postponed, shared, update, within
from ringside_core.keras.tensorflow import tf

_thread = threading.local()  # a strategy traces each replica in a thread of its own


def _apply(
    part: Part,
    upstream: Callable[..., Any],
    optimizer: Any,
    grads: Any,
    trainable_variables: Any = None,
    **kwargs: Any,
) -> Any:
    if getattr(_thread, "applying", False):  # a loss scale calls the optimizer within it
        return upstream(optimizer, grads, trainable_variables, **kwargs)
    variables = trainable_variables
    if variables is None:
        variables = optimizer._trainable_variables
    elif not optimizer.built:  # outside of the graph, as legacy Keras does
        with tf.init_scope():
            optimizer.build(trainable_variables)
    if postponed(part, grads := list(grads), variables):
        return None
    if (inner := getattr(optimizer, "inner_optimizer", None)) is not None:
        # A strategy calls it in threads of its own, where no step is known.
        vars(inner)["_all_reduce_sum_gradients"] = lambda pairs: pairs
    gradients = shared(part, grads, [getattr(v, "value", v) for v in variables])
    _thread.applying = True
    try:
        return upstream(optimizer, gradients, trainable_variables, **kwargs)
    finally:
        _thread.applying = False


def _change_keras() -> None:
    within(keras.optimizers.Optimizer, "apply", _apply)
    within(keras.optimizers.LossScaleOptimizer, "apply", _apply)
    within(
        keras.optimizers.Optimizer,
        "_all_reduce_sum_gradients",
        lambda part, upstream, optimizer, pairs: pairs,
    )
    within(keras.losses.Loss, "__call__", mean_over_own_rows)
    for kind in (keras.metrics.Mean, keras.metrics.Sum):
        within(kind, "update_state", update)


_change_keras()
