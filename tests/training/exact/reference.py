"""What plain Keras says of the same model and data, without Ringside."""

from typing import Any

import numpy as np

from ringside_core.keras import tf
from ringside_core.workloads.source import ArraySource
from ringside_core.workloads.workload import Workload


def plain_keras(
    workload: Workload, weights: list[Any], batch: int
) -> tuple[dict[str, float], list[np.ndarray]]:
    """`Model.evaluate` and `Model.predict` in batches that do not divide the examples."""
    model = workload.model()
    model.set_weights(weights)
    model.compile(
        loss=workload.loss,
        loss_weights=workload.loss_weights,
        weighted_metrics=workload.metrics(),
    )
    assert isinstance(workload.validation, ArraySource)
    batches = tf.data.Dataset.from_tensor_slices(workload.validation.arrays).batch(batch)
    values = model.evaluate(batches, verbose=0, return_dict=True)
    return values, tf.nest.flatten(model.predict(batches, verbose=0))
