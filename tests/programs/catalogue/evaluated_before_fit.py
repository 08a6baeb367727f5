"""Evaluated and asked before it is trained, and after: hits of a row count once each time."""

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "equal", True

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(37, 6))
y = (x[:, :1] > 0.3).astype(int)

with ringside.scope():
    model = tf.keras.Sequential(
        [
            tf.keras.Input((6,)),
            tf.keras.layers.Dense(4, "tanh"),
            tf.keras.layers.Dense(1, "sigmoid"),
        ]
    )
    hits = tf.keras.metrics.TruePositives(name="hits")
    model.compile(tf.keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=[hits, "accuracy"])
results = {}


def look(when):
    """What the model makes of all rows."""
    results[f"evaluated {when}"] = model.evaluate(x, y, batch_size=8, verbose=0)
    results[f"predicted {when}"] = model.predict(x, batch_size=8, verbose=0)


look("before")
history = ringside.fit(model, x, y, batch_size=8, epochs=2, verbose=0)
look("after")
results |= {"weights": model.get_weights(), **history.history}
