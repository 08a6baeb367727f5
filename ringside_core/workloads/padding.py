"""What `padded_batch` does to each element, as a map of single elements."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ringside_core.keras import tf


def told_sizes(dataset: Any) -> list[Any]:
    """The sizes of each part of an element, as `padded_batch` was told them; -1: it was not.

    Args:
        dataset: what `padded_batch` made.
    """
    return [tf.get_static_value(size) for size in tf.nest.flatten(dataset._padded_shapes)]


def longest(elements: Any, sizes: Sequence[Any]) -> list[Any]:
    """The sizes with each -1 replaced by the largest that an element has; reads all elements.

    Args:
        elements: a finite tf.data.Dataset.
        sizes: see `told_sizes`.
    """

    def shapes(*element: Any) -> Any:
        parts = tf.nest.flatten(element)
        return tuple(tf.shape(part, tf.int64) for part in parts)

    def larger(one: Any, other: Any) -> Any:
        return tf.nest.map_structure(tf.maximum, one, other)

    none = tuple(tf.zeros([len(size)], tf.int64) for size in sizes)
    most = elements.map(shapes, num_parallel_calls=tf.data.AUTOTUNE).reduce(none, larger)
    pairs = zip(sizes, most, strict=True)
    return [np.where(size < 0, found.numpy(), size) for size, found in pairs]


def padding_of(dataset: Any, sizes: Sequence[Any]) -> Any:
    """The padding of a `padded_batch`, as the function of a map that tf.data has wrapped.

    Args:
        dataset: what `padded_batch` made.
        sizes: of each part of an element.
    """
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
