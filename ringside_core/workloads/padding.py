"""What `padded_batch` does to each element, as a map of single elements."""

from typing import Any

import numpy as np

from ringside_core.keras import tf


def padding_of(dataset: Any) -> Any:
    """The padding of a `padded_batch`, which gives every element the sizes that are told.

    Args:
        dataset: what `padded_batch` made.

    Returns:
        The function of a map, as tf.data wraps it. None: a size is that of the longest element of
        the batch, so it depends on the batch.
    """
    sizes = [tf.get_static_value(size) for size in tf.nest.flatten(dataset._padded_shapes)]
    if any(size is None or (size < 0).any() for size in sizes):
        return None
    values = tf.nest.flatten(dataset._padding_values)

    def padded(*element: Any) -> Any:
        whole = element[0] if len(element) == 1 else element
        parts = zip(tf.nest.flatten(whole), sizes, values, strict=True)
        return tf.nest.pack_sequence_as(whole, [_padded(*part) for part in parts])

    return dataset._input_dataset.map(padded)._map_func


def _padded(one: Any, size: Any, value: Any) -> Any:
    if not len(size):
        return one
    missing = np.asarray(size) - tf.shape(one, tf.int64)
    made = tf.pad(one, tf.stack([tf.zeros_like(missing), missing], axis=1), constant_values=value)
    return tf.ensure_shape(made, size)
