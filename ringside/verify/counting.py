"""A workload whose final weights show how often the gradient of each example was applied.

There is one weight for each example. It begins at 0, and the example's loss is -weight. So the
gradient of example i is always -1 in weight i and 0 elsewhere. With plain SGD at rate 1, weight i
ends at the sum of the factors with which this gradient was applied, in any order, however stale.
"""

from typing import Any

import numpy as np

from ringside.verify.checks import NUM_COUNTED
from ringside_core.keras import tf
from ringside_core.workloads.workload import Workload

NUM_EXAMPLES = NUM_COUNTED


def counting() -> Workload:
    """Forty examples; element i is (i, 0)."""
    ids = np.arange(NUM_EXAMPLES)
    nothing = np.zeros((NUM_EXAMPLES, 1))
    return Workload(
        name="counting",
        model=_model,
        train=(ids, nothing),
        validation=(ids[:5], nothing[:5]),
        preprocess=_one_hot,
        loss=_minus_output,
        optimizer=lambda: tf.keras.optimizers.SGD(1.0),
    )


def _one_hot(number: Any, y: Any) -> Any:
    return tf.one_hot(number, NUM_EXAMPLES, dtype=tf.keras.backend.floatx()), y


def _minus_output(y: Any, output: Any) -> Any:
    del y
    return -tf.squeeze(output, axis=-1)


def _model() -> Any:
    return tf.keras.Sequential(
        [
            tf.keras.layers.Dense(
                1, use_bias=False, kernel_initializer="zeros", input_shape=(NUM_EXAMPLES,)
            )
        ],
        name="counting",
    )
