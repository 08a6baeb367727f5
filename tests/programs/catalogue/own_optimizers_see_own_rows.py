"""Optimizers of the author's that clip or accumulate: they must see the whole batch's gradient."""

import numpy as np
import tensorflow as tf

import ringside

KIND, GRADIENTS = "equal", "tape"

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(35, 6))
SGD = tf.keras.optimizers.SGD


class Adaptive(SGD):
    def apply_gradients(self, grads_and_vars, *args, **kwargs):
        clipped = []
        for gradient, variable in grads_and_vars:
            most = 0.01 * tf.maximum(tf.norm(variable), 1e-3) / tf.maximum(tf.norm(gradient), 1e-6)
            clipped.append((gradient * tf.minimum(most, 1), variable))
        return super().apply_gradients(clipped, *args, **kwargs)


class Accumulator(SGD):
    def build(self, var_list):
        super().build(var_list)
        if not hasattr(self, "_sums"):
            self._sums = [self.add_variable_from_reference(v, "sum") for v in var_list]
            self._seen = tf.Variable(0, trainable=False, dtype=tf.int64)

    def apply_gradients(self, grads_and_vars, *args, **kwargs):
        gradients, variables = zip(*grads_and_vars, strict=True)
        with tf.init_scope():
            self.build(variables)
        for total, gradient in zip(self._sums, gradients, strict=True):
            total.assign_add(gradient / 3)
        self._seen.assign_add(1)
        due = tf.cast(tf.equal(self._seen % 3, 0), variables[0].dtype)
        pairs = [(total * due, v) for total, v in zip(self._sums, variables, strict=True)]
        done = super().apply_gradients(pairs, *args, **kwargs)
        for total in self._sums:
            total.assign(total * (1 - due))
        return done


results = {}
for kind in (Adaptive, Accumulator):
    with ringside.scope():
        model = tf.keras.Sequential(
            [tf.keras.Input((6,)), tf.keras.layers.Dense(8, "tanh"), tf.keras.layers.Dense(1)]
        )
        model.compile(kind(0.3), "mse")
    history = ringside.fit(
        model, x, x[:, :1] ** 2, batch_size=8, epochs=2, verbose=0, gradients="tape"
    )
    results |= {
        f"{kind.__name__} weights": model.get_weights(),
        kind.__name__: history.history["loss"],
    }
