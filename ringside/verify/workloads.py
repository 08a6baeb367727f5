"""The small workload of verification, which counts gradients."""

from typing import Any

import numpy as np

from ringside_core.keras import policy_scope, tf
from ringside_core.workloads.workload import Workload

# No weight of the counting workload comes near it.
FAR_ABOVE = 1024.0


def counting(examples: int, *, own_loss: bool = False) -> Workload:
    """Examples by number; the final weights show how often the gradient of each was applied.

    There is one weight for each example. It begins at 0, and the example's loss is what it lacks to
    a number far above. So the gradient of example i is always -1 in weight i and 0 elsewhere. With
    plain SGD at rate 1, weight i ends at the sum of the factors with which this gradient was
    applied, in any order, however stale.

    Element i is (i, FAR_ABOVE).

    Args:
        examples: how many.
        own_loss: with a loss of an author's own, which trains true examples only; else with Keras'
            loss, which weighs the padding with 0 (trainers/whole_batch.py).
    """
    ids = np.arange(examples)
    labels = np.full((examples, 1), FAR_ABOVE)

    def one_hot(number: Any, y: Any) -> Any:
        return tf.one_hot(number, examples, dtype=tf.keras.backend.floatx()), y

    return Workload(
        name="counting",
        model=lambda: _counting_model(examples),
        train=(ids, labels),
        validation=(ids[:5], labels[:5]),
        preprocess=one_hot,
        loss=_lacking if own_loss else "mean_absolute_error",
        optimizer=lambda: tf.keras.optimizers.SGD(1.0),
    )


def _lacking(y: Any, output: Any) -> Any:
    return tf.squeeze(y - output, axis=-1)


def _counting_model(examples: int) -> Any:
    dense = tf.keras.layers.Dense
    with policy_scope(tf.keras.backend.floatx()):  # a user's own may be the global one
        return tf.keras.Sequential(
            [dense(1, use_bias=False, kernel_initializer="zeros", input_shape=(examples,))],
            name="counting",
        )
