"""Class and sample weights: normalized by own rows' weights, or lost, the loss is another."""

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "equal", True

tf.keras.utils.set_random_seed(7)
rng = np.random.default_rng(3)
x = rng.normal(size=(46, 6))  # 37 without those that are held out
y = (x[:, 0] + 0.3 * x[:, 1] > 0.4).astype(int)
weights = np.where(np.arange(46) % 4, 1.0 + np.arange(46) % 5, 0.0)
results = {}

for name, arguments in {
    "class": {"class_weight": {0: 0.5, 1: 4.0}},
    "sample": {"sample_weight": weights, "validation_split": 0.2},
}.items():
    with ringside.scope():
        model = tf.keras.Sequential(
            [tf.keras.Input((6,)), tf.keras.layers.Dense(4, "tanh"), tf.keras.layers.Dense(1)]
        )
        loss = tf.keras.losses.BinaryCrossentropy(from_logits=True)
        model.compile(
            tf.keras.optimizers.Adam(0.01),
            loss,
            metrics=["mae"],
            weighted_metrics=["mse", tf.keras.metrics.TruePositives(name="hits", thresholds=0)],
        )
    history = ringside.fit(model, x, y[:, None], batch_size=8, epochs=2, verbose=0, **arguments)
    results[f"{name} weights"] = model.get_weights()
    results |= {f"{name} {key}": values for key, values in history.history.items()}
