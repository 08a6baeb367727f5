"""A script in half precision, one of whose batches overflows in one replica only.

python mixed.py numbers.npz mixed_float16
"""

import sys

import numpy as np

import ringside
from ringside import tf

BATCH = 12
tf.keras.mixed_precision.set_global_policy(sys.argv[2])
tf.keras.utils.set_random_seed(1)
x = np.random.default_rng(0).normal(size=(5 * BATCH + 5, 8)).astype(np.float32)
y = np.sin(x.sum(axis=1, keepdims=True))
if sys.argv[2] == "mixed_float16":
    y[2 * BATCH] = 300  # its gradient overflows: in the first replica's part of the third batch

with ringside.scope():
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Dense(8, activation="tanh", input_shape=(8,)),
            tf.keras.layers.Dense(1),
            tf.keras.layers.Activation("linear", dtype="float32"),
        ]
    )
    model.compile(tf.keras.optimizers.SGD(0.1, momentum=0.5), "mse")
history = ringside.fit(model, x, y, batch_size=BATCH, epochs=2, shuffle=False)
if ringside.is_chief():
    numbers = {str(i): weight for i, weight in enumerate(model.get_weights())}
    numbers["iterations"] = model.optimizer.iterations.numpy()
    if isinstance(model.optimizer, tf.keras.mixed_precision.LossScaleOptimizer):
        numbers["scale"] = model.optimizer.loss_scale.numpy()
        numbers["counter"] = model.optimizer.dynamic_counter.numpy()
    np.savez(sys.argv[1], loss=history.history["loss"], **numbers)
