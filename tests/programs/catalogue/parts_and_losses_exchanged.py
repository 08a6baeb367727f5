"""Two named inputs, two outputs and loss weights: exchanged or unweighted, both losses change."""

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "equal", True

tf.keras.utils.set_random_seed(7)
rng = np.random.default_rng(3)
layers = tf.keras.layers
one, other = rng.normal(size=(37, 4)), rng.normal(size=(37, 4))
x = {"first": one, "second": other}
y = {"kind": rng.integers(0, 3, 37), "size": one[:, :1] * other[:, :1]}

with ringside.scope():
    given = {name: tf.keras.Input((4,), name=name) for name in ("first", "second")}
    hidden = layers.Dense(6, activation="tanh")(
        layers.Concatenate()([layers.Dense(3)(given["first"]), layers.Dense(4)(given["second"])])
    )
    outputs = {"kind": layers.Dense(3, name="kind")(hidden)}
    outputs["size"] = layers.Dense(1, name="size")(hidden)
    model = tf.keras.Model(given, outputs)
    cross_entropy = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(
        tf.keras.optimizers.Adam(0.01),
        loss={"kind": cross_entropy, "size": "mse"},
        loss_weights={"kind": 0.3, "size": 2.0},
        metrics={"kind": ["accuracy"], "size": ["mae"]},
    )
history = ringside.fit(model, x, y, batch_size=8, epochs=2, verbose=0)
results = {"weights": model.get_weights(), **history.history}
