"""Batch normalisation with `synchronized=True` under Horovod, by one all-reduce for each layer.

Keras asks the replica context of tf.distribute for the sums over all replicas. That context
takes each Horovod rank for the only replica: without this file a rank would silently use the
statistics of its own slice. Horovod's SyncBatchNormalization is another layer, which no strategy of
tf.distribute synchronises.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from backends.horovod_sums import sum_over_ranks
from ringside_core.keras import VERSION, tf


def synchronise(model: Any) -> None:
    """Let layers with `synchronized=True` use mean and variance over the batches of all ranks."""
    for layer in model._flatten_layers():
        if not getattr(layer, "synchronized", False):
            continue
        if VERSION == 2:
            layer._sync_calculate_mean_and_var = mean_and_variance
        else:
            vars(layer)["_moments"] = partial(_moments, layer)


def _moments(layer: Any, inputs: Any, mask: Any) -> tuple[Any, Any]:
    return mean_and_variance(inputs, layer._reduction_axes, keep_dims=False, mask=mask)


def mean_and_variance(
    x: Any, reduction_axes: Sequence[int], keep_dims: bool, mask: Any = None
) -> tuple[Any, Any]:
    """Replaces `BatchNormalizationBase._sync_calculate_mean_and_var`, with the same formulas.

    And `BatchNormalization._moments` of Keras 3.

    Args:
        x: the layer's input on this rank.
        reduction_axes: the axes to sum over.
        keep_dims: whether the results keep these axes, with length 1.
        mask: the examples (or their time steps) that count; None: all of them.
    """
    # float16 is too narrow for sums.
    y = tf.cast(x, tf.float32) if x.dtype == tf.float16 else x
    count = tf.ones_like(y)
    if mask is not None:
        count *= tf.cast(mask, y.dtype)[..., tf.newaxis]
        y *= count
    sums = [
        tf.reduce_sum(one, axis=reduction_axes, keepdims=True) for one in (y, tf.square(y), count)
    ]
    total, of_squares, number = tf.unstack(sum_over_ranks([tf.stack(sums)])[0])
    mean = tf.math.divide_no_nan(total, number)
    # E(x²) - E(x)² may fall below zero by rounding.
    variance = tf.maximum(tf.math.divide_no_nan(of_squares, number) - tf.square(mean), 0.0)
    if not keep_dims:
        mean, variance = (tf.squeeze(one, reduction_axes) for one in (mean, variance))
    return tf.cast(mean, x.dtype), tf.cast(variance, x.dtype)
