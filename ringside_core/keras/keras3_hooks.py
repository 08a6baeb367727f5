"""What Keras 3 (3.15) does differently within a step on a part of a global batch.

Changed here, each only within a step (`part.within`):

- `Optimizer.apply`, `LossScaleOptimizer.apply`, `_all_reduce_sum_gradients`: gradients × share are
  summed before they are clipped and looked at for an overflow; Keras sums them after that. Of
  several passes, the last one updates.
- `Loss.__call__`: a mean over the own rows; `apply_mask`, `reduce_values`: over what masks leave,
  or over the weights, of all replicas' rows.
- `Mean.update_state`: a single number counts by the share; `Sum.update_state` refuses one.

And everywhere:

- In float64 every layer computes so, also one whose author chose another type: certificates do.
- A variable adds in one operation. Keras writes `assign(self + value)`: parameter servers lose
  counts, and central storage adds a variable to itself.
- What layers of Keras keep beside their weights, such as moving statistics, is each replica's own,
  and its mean is read, as in legacy Keras. All weights are made outside of a graph that is traced.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras.src.backend.common.stateless_scope import in_stateless_scope
from keras.src.backend.tensorflow.core import Variable
from keras.src.losses import loss

from ringside_core.keras.part import (
    Part,
    divisor_of_all,
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
    held, grads = [getattr(v, "value", v) for v in variables], list(grads)
    if postponed(part, grads, held):
        return None
    if (inner := getattr(optimizer, "inner_optimizer", None)) is not None:
        # A strategy calls it in threads of its own, where no step is known.
        vars(inner)["_all_reduce_sum_gradients"] = lambda pairs: pairs
    gradients = shared(part, grads, held)
    _thread.applying = True
    try:
        return upstream(optimizer, gradients, trainable_variables, **kwargs)
    finally:
        _thread.applying = False


def _masked(
    part: Part, upstream: Callable[..., Any], sample_weight: Any, mask: Any, dtype: Any,
    reduction: str,
) -> Any:  # fmt: skip
    if mask is not None and reduction in ("mean", "sum_over_batch_size"):
        mask, reduction = mask_of_all(part, mask, dtype), "sum"
    return upstream(sample_weight, mask, dtype=dtype, reduction=reduction)


def _mean_by_weights(
    part: Part, upstream: Callable[..., Any], values: Any, sample_weight: Any, reduction: str
) -> Any:
    if reduction != "mean_with_sample_weight" or sample_weight is None:
        return upstream(values, sample_weight, reduction)
    weights = tf.cast(tf.reduce_sum(sample_weight), values.dtype)
    return tf.math.divide_no_nan(tf.reduce_sum(values), divisor_of_all(part, weights))


def _at_once(change: str, upstream: Any) -> Any:
    @functools.wraps(upstream)
    def changed(self: Any, value: Any) -> Any:
        if in_stateless_scope() or self._value is None:
            return upstream(self, value)
        value = self._convert_to_tensor(value, dtype=self._dtype)
        getattr(self._value, change)(tf.broadcast_to(value, self._value.shape))
        return self._value

    return changed


def _of_each_replica(make: Any) -> Any:
    @functools.wraps(make)
    def made(layer: Any, *args: Any, **kwargs: Any) -> Any:
        # Of an author's own a mean may be wrong: where copies part, `check_replicas` names it.
        kept = not kwargs.get("trainable", True) and _begun_by_keras(layer)
        with tf.init_scope(), _kept(kept):
            return make(layer, *args, **kwargs)

    return made


def _begun_by_keras(layer: Any) -> bool:
    """Whether a layer is one of Keras, or an author's change of one."""
    nearest = next(kind for kind in type(layer).__mro__ if kind.__module__.startswith("keras."))
    return not issubclass(keras.Layer, nearest) and not issubclass(nearest, keras.Model)


@contextlib.contextmanager
def _kept(kept: bool) -> Iterator[None]:
    before = getattr(_thread, "kept", False)
    _thread.kept = kept
    try:
        yield
    finally:
        _thread.kept = before


def _seeded(upstream: Any) -> Any:
    @functools.wraps(upstream)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        with _kept(True):
            upstream(self, *args, **kwargs)

    return made


def _aggregated(upstream: Any) -> Any:
    @functools.wraps(upstream)
    def chosen(self: Any, aggregation: str) -> Any:
        if getattr(_thread, "kept", False) and aggregation == "none":
            aggregation = "mean" if "float" in self._dtype else "only_first_replica"
        return upstream(self, aggregation)

    return chosen


def _synchronized(upstream: Any) -> Any:
    @functools.wraps(upstream)
    def chosen(self: Any, synchronization: str) -> Any:
        if getattr(_thread, "kept", False) and synchronization == "auto":
            synchronization = "on_read"
        return upstream(self, synchronization)

    return chosen


def _change_variables() -> None:
    policy, seeds = keras.DTypePolicy, keras.random.SeedGenerator
    policy.__init__ = wide_in_float64(policy.__init__)
    for change in ("assign_add", "assign_sub"):
        setattr(Variable, change, _at_once(change, getattr(Variable, change)))
    keras.Layer.add_weight = _of_each_replica(keras.Layer.add_weight)
    Variable._map_aggregation = _aggregated(Variable._map_aggregation)
    Variable._map_synchronization = _synchronized(Variable._map_synchronization)
    seeds.__init__ = _seeded(seeds.__init__)


def _change_keras() -> None:
    within(keras.optimizers.Optimizer, "apply", _apply)
    within(keras.optimizers.LossScaleOptimizer, "apply", _apply)
    within(
        keras.optimizers.Optimizer,
        "_all_reduce_sum_gradients",
        lambda part, upstream, optimizer, pairs: pairs,
    )
    within(keras.losses.Loss, "__call__", mean_over_own_rows)
    within(loss, "apply_mask", _masked)
    within(loss, "reduce_values", _mean_by_weights)
    within(keras.metrics.Mean, "update_state", update)
    within(keras.metrics.Sum, "update_state", update_sum)


_change_keras()
_change_variables()
