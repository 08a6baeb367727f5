"""Legacy optimizers, one with a hook before the reduction, and one that keeps averages."""

import numpy as np
import tensorflow as tf

import ringside

KIND = "equal"

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(37, 6))
legacy = tf.keras.optimizers.legacy


class Centralized(legacy.SGD):
    def _transform_unaggregated_gradients(self, grads_and_vars):
        return [
            (g - tf.reduce_mean(g, axis=0, keepdims=True) if g.shape.rank > 1 else g, v)
            for g, v in grads_and_vars
        ]


results = {}
for name, make in {
    "centralized": lambda: Centralized(0.3, momentum=0.9),
    "legacy": lambda: legacy.Adam(0.01, decay=0.1),
    "averaged": lambda: tf.keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.9),
}.items():
    with ringside.scope():
        model = tf.keras.Sequential(
            [tf.keras.Input((6,)), tf.keras.layers.Dense(4, "tanh"), tf.keras.layers.Dense(1)]
        )
        model.compile(make(), "mse")
    history = ringside.fit(
        model, x, x[:, :1] ** 2, batch_size=8, epochs=2, validation_split=0.2, verbose=0
    )
    results |= {f"{name} weights": model.get_weights()}
    results |= {f"{name} {key}": values for key, values in history.history.items()}
