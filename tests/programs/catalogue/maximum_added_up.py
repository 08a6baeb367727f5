"""Metrics that are no sums: a maximum, a mean of batches, a recall by table, F1 of a batch."""

import numpy as np
import tensorflow as tf

import ringside

KIND = "equal"

tf.keras.utils.set_random_seed(7)
rng = np.random.default_rng(3)
x, y = rng.normal(size=(46, 6)), rng.integers(0, 3, (46, 1))  # 35 train, 11 are held out


class Own(tf.keras.metrics.Metric):
    def __init__(self, name, shape=(), **kwargs):
        super().__init__(name=name, **kwargs)
        self.state = self.add_weight(name="state", shape=shape, initializer="zeros")

    def reset_state(self):
        self.state.assign(tf.zeros_like(self.state))

    def result(self):
        return tf.identity(self.state)


class Most(Own):
    def update_state(self, y_true, y_pred, sample_weight=None):
        self.state.assign(tf.maximum(self.state, tf.reduce_max(y_pred)))


class Batches(Own):
    def update_state(self, y_true, y_pred, sample_weight=None):
        self.state.assign_add([tf.reduce_mean(y_pred[:, 0]), tf.cast(1, y_pred.dtype)])

    def result(self):
        return self.state[0] / self.state[1]


class Recall(Own):
    def update_state(self, y_true, y_pred, sample_weight=None):
        labels = tf.reshape(y_true, [-1])
        found = tf.math.confusion_matrix(labels, tf.argmax(y_pred, 1), 3, dtype=self.state.dtype)
        self.state.assign_add(found)

    def result(self):
        right = tf.linalg.diag_part(self.state)
        return tf.reduce_mean(right / tf.maximum(tf.reduce_sum(self.state, 1), 1))


def f1(y_true, y_pred):
    """F1 of the first kind, of this batch."""
    wanted = tf.cast(tf.equal(y_true[:, 0], 0), y_pred.dtype)
    hits = tf.reduce_sum(wanted * y_pred[:, 0])
    return 2 * hits / (tf.reduce_sum(wanted) + tf.reduce_sum(y_pred[:, 0]))


with ringside.scope():
    metrics = [Most("most"), Batches("batches", (2,)), Recall("recall", (3, 3)), f1, "accuracy"]
    model = tf.keras.Sequential(
        [tf.keras.Input((6,)), tf.keras.layers.Dense(3, activation="softmax")]
    )
    model.compile(tf.keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy", metrics)
history = ringside.fit(model, x, y, batch_size=8, epochs=2, validation_split=0.23, verbose=0)
results = {"weights": model.get_weights(), **history.history}
