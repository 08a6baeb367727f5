"""Models of several shapes with metrics of several kinds, on few examples."""

from typing import Any

import numpy as np

from ringside_core.keras import tf
from ringside_core.workloads.workload import Workload

SIZES = (7, 23)
"""Validation examples; with a global batch of 6 the last batch holds 1 or 5."""


class SharpHits(tf.keras.metrics.Metric):
    """A user's own: weight of the examples whose right class has more than half the probability."""

    def __init__(self) -> None:
        super().__init__(name="sharp_hits")
        self._hits = self.add_weight(name="hits", initializer="zeros")
        self._all = self.add_weight(name="all", initializer="zeros")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add a batch of labels [batch, 1] and probabilities [batch, classes]."""
        labels = tf.cast(tf.reshape(y_true, [-1]), tf.int64)
        sharp = tf.gather(y_pred, labels, batch_dims=1) > 0.5
        weight = tf.reshape(sample_weight, [-1])  # Keras hands over [batch, 1]
        self._hits.assign_add(tf.reduce_sum(tf.cast(sharp, weight.dtype) * weight))
        self._all.assign_add(tf.reduce_sum(weight))

    def result(self) -> Any:
        """Their share."""
        return self._hits / self._all


class ProbabilityIoU(tf.keras.metrics.MeanIoU):
    """MeanIoU of the most probable class."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Add a batch."""
        return super().update_state(y_true, tf.argmax(y_pred, -1), sample_weight)


def top_2(y_true: Any, y_pred: Any) -> Any:
    """Top-2 accuracy; TensorFlow has `in_top_k` for float32 alone."""
    return tf.keras.metrics.sparse_top_k_categorical_accuracy(
        y_true, tf.cast(y_pred, tf.float32), 2
    )


def nearness(y_true: Any, y_pred: Any) -> Any:
    """A function, which Keras makes a metric of: the mean of 1 - error, [batch]."""
    return tf.reduce_mean(1 - tf.abs(tf.cast(y_true, y_pred.dtype) - y_pred), -1)


def two_outputs(examples: int) -> Workload:
    """A nest of outputs with regularisers, loss weights and sample weights."""
    x, weight, generator = _inputs(examples)
    labels = generator.integers(0, 2, size=(examples, 1)).astype(np.float64)
    data = (x, {"size": x.sum(axis=1, keepdims=True) ** 2, "sign": labels}, weight)

    def model() -> Any:
        layers = tf.keras.layers
        inputs = tf.keras.Input((3,))
        hidden = layers.Dense(4, "tanh", kernel_regularizer="l2", activity_regularizer="l2")(inputs)
        return tf.keras.Model(
            inputs,
            [layers.Dense(1, name="size")(hidden), layers.Dense(1, "sigmoid", name="sign")(hidden)],
        )

    return Workload(
        name="two_outputs",
        model=model,
        train=data,
        validation=data,
        loss={"size": "mse", "sign": "binary_crossentropy"},
        loss_weights={"size": 0.3, "sign": 2.0},
        optimizer=tf.keras.optimizers.SGD,
        metrics=lambda: {
            "size": [
                tf.keras.metrics.MeanAbsoluteError(name="mae"),
                tf.keras.metrics.RootMeanSquaredError(name="rmse"),
            ],
            "sign": ["accuracy", nearness, tf.keras.metrics.AUC(name="auc")],
        },
    )


def classifier(examples: int) -> Workload:
    """Four classes; metrics with states of every shape."""
    x, weight, generator = _inputs(examples)
    data = (x, generator.integers(0, 4, size=examples), weight)

    def model() -> Any:
        layers = tf.keras.layers
        return tf.keras.Sequential(
            [layers.Dense(5, "tanh", input_shape=(3,)), layers.Dense(4, "softmax")]
        )

    return Workload(
        name="classifier",
        model=model,
        train=data,
        validation=data,
        loss="sparse_categorical_crossentropy",
        optimizer=tf.keras.optimizers.SGD,
        metrics=lambda: [
            "accuracy",
            top_2,
            ProbabilityIoU(4, name="iou"),
            SharpHits(),
        ],
    )


WORKLOADS = {"two_outputs": two_outputs, "classifier": classifier}


def _inputs(examples: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    generator = np.random.default_rng(examples)
    x = 2 * generator.normal(size=(examples, 3))
    return x, generator.uniform(0.25, 2, size=examples), generator
