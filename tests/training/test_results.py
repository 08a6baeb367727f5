"""What a step of one's own tells of its batch."""

from typing import Any

import numpy as np

from ringside_core.keras import tf
from trainers.results import Results, counted_by


def told_by(values: Any, **given: Any) -> Any:
    """What can be told of one update by a `Mean` that a step is returned from."""
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.mean = tf.keras.metrics.Mean(name="mean")
    results = Results.of(model)
    with counted_by(tf.constant(0.5), None):
        model.mean.update_state(values, **given)
        return results.of_batch(model.mean.result())


def test_a_mean_of_examples_is_told_of_each_update() -> None:
    """By the examples of the parts, whatever was told before."""
    np.testing.assert_allclose(told_by([1.0, 3.0, 8.0]), 4.0)
    np.testing.assert_allclose(told_by(5.0), 5.0)


def test_a_weighted_mean_is_not() -> None:
    """Parts have other sums of weights: their means, weighted by examples, are not the whole's.

    As a masked language model counts the tokens that it hides.
    """
    assert told_by([1.0, 3.0, 8.0], sample_weight=[1.0, 0.0, 1.0]) is None
    assert told_by(4.5, sample_weight=2.0) is None
