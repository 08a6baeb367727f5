"""Predictions of two replicas in one process; TF_USE_LEGACY_KERAS says by which Keras."""

import numpy as np

from backends import make_backend
from ringside_core.keras import VERSION, tf
from ringside_core.specs import Surroundings
from tests.unit.stats.factory import spec_of
from trainers.step import Steps

layers = tf.keras.layers
spec = spec_of("mirrored", 2, keras=VERSION)
x = np.random.default_rng(3).normal(size=(33, 6, 6, 2)).astype("float32")
with make_backend(spec, Surroundings()) as backend:
    steps = Steps(backend)
    with backend.scope():
        convolved = [tf.keras.Input((6, 6, 2)), layers.Conv2D(3, 3, activation="relu")]
        pooled = [layers.BatchNormalization(), layers.GlobalAveragePooling2D()]
        model = tf.keras.Sequential([*convolved, *pooled, layers.Dense(1)])
        model.compile("sgd", "mse")
    steps.take(model)
    for count in (1, 33, 1):
        found = model.predict(x[:count], batch_size=32, verbose=0)
        np.testing.assert_allclose(found, model(x[:count]), rtol=1e-5, atol=1e-6)
print("all right")
