"""Sums over Horovod's ranks within a step. Ranks find what they sum by its operation's name."""

from typing import Any

from ringside_core.keras import tf


def unmerged(nest: Any) -> Any:
    """What is to be summed, behind operations that TensorFlow does not merge or compute beforehand.

    It makes one operation of two that are equal, such as the gradients of two biases that are
    added. A rank with one row has another graph, and may keep both, or the name of the other: all
    would wait without an end.
    """
    return tf.nest.map_structure(
        lambda t: None if t is None else tf.raw_ops.PlaceholderWithDefault(input=t, shape=t.shape),
        nest,
        expand_composites=True,
    )


def sum_over_ranks(tensors: list[Any]) -> list[Any]:
    """Together, as fewer messages; without compression. All are of one type."""
    import horovod.tensorflow as hvd

    @tf.custom_gradient  # Horovod's own would be merged
    def summed(*own: Any) -> Any:
        totals = hvd.grouped_allreduce(unmerged(list(own)), op=hvd.Sum)
        return totals, lambda *upstream: sum_over_ranks(list(upstream))

    return list(summed(*tensors))
