"""A script without seeds: an unseeded shuffle, NumPy's numbers, and a generator if it is asked for.

`python unseeded.py numbers.npz [alone] [held_out] [in_parallel]`
"""

import random
import sys
from collections.abc import Iterator
from typing import Any

import ringside

# isort: split
import numpy as np
import tensorflow as tf

tf.keras.backend.set_floatx("float64")
x = np.random.normal(size=(20, 3)) + random.random()
with ringside.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(3,))])
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).shuffle(20)
several = 2 if "in_parallel" in sys.argv else None


def noisy(a: Any, b: Any) -> Any:
    """A row with noise."""
    return a + tf.random.normal([3], dtype=tf.float64), b


batches = data.map(noisy, num_parallel_calls=several).batch(6)


def drawn() -> Iterator[Any]:
    """Batches of which each process draws its own after the first two."""
    own = np.random.default_rng()
    for number in range(4):
        rows = own.normal(size=(6, 3)) if number > 1 else x[:6]
        yield rows, rows[:, :1]


held = x[np.random.default_rng().permutation(20)[:6]]  # each process holds out its own
if "held_out" in sys.argv:
    ringside.fit(model, batches, validation_data=(held, held[:, :1]), verbose=0)
elif "alone" in sys.argv:
    ringside.fit(model, drawn(), verbose=0)
else:
    ringside.fit(model, batches, epochs=2, verbose=0)
if ringside.is_chief():
    np.savez(sys.argv[1], *model.get_weights(), np.random.random())
