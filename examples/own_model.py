"""A workload of your own: `python train.py --workload examples/own_model.py:workload`.

The same file runs unchanged under every backend and launcher.
"""

import numpy as np

from ringside import QualityTarget, Workload, tf


def workload() -> Workload:
    """A small net that separates two moons; replace model and data with yours."""
    return Workload(
        name="two_moons",
        model=lambda: tf.keras.Sequential(
            [
                tf.keras.layers.Dense(32, activation="relu", input_shape=(2,)),
                tf.keras.layers.Dense(32, activation="relu"),
                tf.keras.layers.Dense(2),
            ]
        ),
        train=moons(2000, seed=0),  # (x, y) arrays, or a tf.data.Dataset that ends
        validation=moons(500, seed=1),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=lambda: tf.keras.optimizers.Adam(0.01),
        metrics=lambda: [tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        target=QualityTarget("accuracy", 0.97),
    )


def moons(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points x [count, 2] float32 and labels y [count]."""
    from sklearn.datasets import make_moons

    x, y = make_moons(count, noise=0.15, random_state=seed)
    return x.astype(np.float32), y
