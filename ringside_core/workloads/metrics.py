"""Metrics as authors give them, made to count true examples under every backend.

A function may return one number for a whole batch. Keras means such numbers over the batches, and
refuses weights beside them. Here each example of the batch is told the number, so that examples can
be weighed and counted. And a metric may count each example once although examples have weights.
"""

from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any

from ringside_core.keras import is_of_keras, tf
from ringside_core.workloads.functions import rewritten

_OWN, _OF_BATCH, _ONCE = "_ringside_own", "_ringside_of_batch", "_ringside_once"


def of_each(metric: Any) -> Any:
    """A function (y, predictions) → a value of each example.

    Args:
        metric: as for `Model.compile`; what is no function of the author's is returned as it is.
    """
    if not isinstance(metric, FunctionType) or is_own(metric):
        return metric
    if is_of_keras(metric):
        return metric

    @wraps(metric)
    @tf.autograph.experimental.do_not_convert
    def told(y: Any, predictions: Any, **arguments: Any) -> Any:
        value = tf.convert_to_tensor(rewritten(metric)(y, predictions, **arguments))
        if value.shape.rank != 0:
            return value
        setattr(metric, _OF_BATCH, True)  # for all metrics that are made of it
        return tf.fill([tf.shape(predictions)[0]], value)

    setattr(told, _OWN, True)
    return told


def is_own(metric: Any) -> bool:
    """Whether this is a function of the author's, see `of_each`."""
    return getattr(metric, _OWN, False)


def tells_of_batch(metric: Any) -> bool:
    """Whether a metric has been told one number for a whole batch by a function of the author's."""
    function: Any = getattr(metric, "_fn", None)
    return is_own(function) and getattr(function.__wrapped__, _OF_BATCH, False) is True


def let_count_once(metric: Any, current_ids: Callable[[], Any]) -> None:
    """Let a metric count each example once, whatever its weight, as `compile(metrics=…)` means.

    Args:
        metric: built.
        current_ids: the ids [batch] of the examples that it is told, below 0 for padding; None: no
            batch is being fed, and padding has the weight 0.
    """
    if getattr(metric, _ONCE, False):
        return
    upstream = metric.update_state

    @wraps(upstream)
    def updated(y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        if sample_weight is not None:
            sample_weight = tf.convert_to_tensor(sample_weight)
            ids = current_ids()
            true = sample_weight > 0 if ids is None else ids >= 0
            sample_weight = tf.cast(true, sample_weight.dtype)
        return upstream(y_true, y_pred, sample_weight)

    metric.update_state = updated
    setattr(metric, _ONCE, True)
