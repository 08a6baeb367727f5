"""Predictions of several replicas in one process, by blocks of a batch."""

import numpy as np
import pytest

from ringside_core.keras import tf
from ringside_core.specs import Surroundings, Topology
from tests.training.momentum import spec_of
from trainers.step import Steps


@pytest.mark.parametrize("count", [1, 33])
def test_a_replica_without_rows_predicts_none(count: int) -> None:
    """33 rows in batches of 32: of the last batch the first of two replicas has no row.

    Some kernels take no empty batch in float32: such as a convolution with a relu.
    """
    from backends import make_backend

    spec = spec_of(
        backend="mirrored", topology=Topology(replicas_per_process=2), precision="float32"
    )
    x = np.random.default_rng(3).normal(size=(count, 6, 6, 2)).astype("float32")
    with make_backend(spec, Surroundings()) as backend:
        steps = Steps(backend)
        with backend.scope():
            model = tf.keras.Sequential(
                [
                    tf.keras.layers.Conv2D(3, 3, activation="relu", input_shape=(6, 6, 2)),
                    tf.keras.layers.GlobalAveragePooling2D(),
                    tf.keras.layers.Dense(2),
                ]
            )
            model.compile("sgd", "mse")
        steps.take(model)

        found = model.predict(x, batch_size=32, verbose=0)

    plain = tf.keras.models.clone_model(model)
    plain.set_weights(model.get_weights())
    np.testing.assert_allclose(found, plain(x), rtol=1e-5, atol=1e-6)
