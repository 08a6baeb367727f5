"""An author's own results of metrics, one of which counts its calls; a step that a model was given.

Callbacks read metrics of the model when an epoch is over, with and without a validation, and
evaluate it within an epoch.
"""

import types

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "equal", True

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(22, 6))
y = 3 * x[:, :1]
first = {"aggregation": tf.VariableAggregation.ONLY_FIRST_REPLICA, "trainable": False}


class Worst(tf.keras.Model):
    def get_metrics_result(self):
        results = super().get_metrics_result()
        loss = tf.cast(results["loss"], self.worst.dtype)
        self.worst.assign(tf.maximum(self.worst, loss))
        calls = tf.identity(self.calls.assign_add(1.0))
        return {**results, "worst": tf.identity(self.worst), "calls": calls}


class Kept(tf.keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.read = []

    def on_epoch_end(self, epoch, logs=None):
        self.read.append(float(self.model.get_metrics_result()["mean_squared_error"]))

    def on_test_end(self, logs=None):
        self.on_epoch_end(0)


class Evaluates(tf.keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if batch == 1:
            self.model.evaluate(x[:6], y[:6], verbose=0)

    def on_train_batch_end(self, batch, logs=None):
        if batch == 1:
            self.model.evaluate(x[6:12], y[6:12], verbose=0)


def made(kind):
    given = tf.keras.Input((6,))
    return kind(given, tf.keras.layers.Dense(1)(given))


def twice(self, data):
    results = type(self).train_step(self, data)
    return {**results, "twice": 2 * results["loss"]}


with ringside.scope():
    worst = made(Worst)
    worst.worst = tf.Variable(0.0, dtype=tf.float64, **first)
    worst.calls = tf.Variable(0.0, dtype=tf.float64, **first)
    worst.compile(tf.keras.optimizers.SGD(0.1), "mse")
    given = made(tf.keras.Model)
    given.train_step = types.MethodType(twice, given)
    given.compile(tf.keras.optimizers.SGD(0.1), "mse")
    read = made(tf.keras.Model)
    read.compile(tf.keras.optimizers.SGD(0.1), "mse", metrics=[tf.keras.metrics.MeanSquaredError()])
how = {"batch_size": 8, "epochs": 2, "verbose": 0, "shuffle": False}
kept = [Kept(), Kept()]
fits = [
    ringside.fit(worst, x, y, **how),
    ringside.fit(given, x, y, **how),
    ringside.fit(read, x, y, callbacks=kept[:1], **how),
    ringside.fit(read, x[:14], y[:14], callbacks=kept[1:], validation_data=(x[14:], y[14:]), **how),
    ringside.fit(read, x, y, callbacks=[Evaluates()], **how),
]
results = {
    **{f"{number}": fit.history for number, fit in enumerate(fits)},
    "read": {f"{number}": np.array(one.read) for number, one in enumerate(kept)},
    "weights": [w for model in (worst, given, read) for w in model.get_weights()],
}
