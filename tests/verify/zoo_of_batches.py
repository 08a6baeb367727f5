"""Models whose losses look at more of their batch than the weights of its examples say.

What couples the examples means in data-parallel training: each replica's part of the batch alone.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside_core.keras import tf
from ringside_core.workloads.workload import Workload

NUM_TRAIN, NUM_VALIDATION, FEATURES, STEPS, VOCABULARY = 27, 7, 5, 4, 7
layers = tf.keras.layers
Array = NDArray[Any]


class Contrastive(tf.keras.Model):
    """Two networks and their optimizers; each example is told from the others of its batch."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = tf.keras.Sequential(
            [
                layers.Dense(6, use_bias=False, input_shape=(FEATURES,)),
                layers.BatchNormalization(momentum=0.7),
                layers.Activation("tanh"),
                layers.Dropout(0.2),
            ]
        )
        self.head = tf.keras.Sequential([layers.Dense(3, input_shape=(6,))])
        self.tracker = tf.keras.metrics.Mean(name="loss")

    def compile(self, of_encoder: Any, of_head: Any) -> None:
        super().compile()
        self.of_encoder, self.of_head = of_encoder, of_head

    @property
    def metrics(self) -> list[Any]:
        return [self.tracker]

    @tf.function
    def train_step(self, x: Any) -> dict[str, Any]:
        for optimizer, network in (
            (self.of_encoder, self.encoder),
            (self.of_head, self.head),  # it sees the encoder as it is by now
        ):
            with tf.GradientTape() as tape:
                loss = self.told_apart(x)
            weights = network.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}

    def told_apart(self, x: Any) -> Any:
        """Cross-entropy of each example among all of the batch."""
        one, other = (
            tf.math.l2_normalize(self.head(self.encoder(view, training=True)), 1)
            for view in (x, tf.reverse(x, [1]))
        )
        scores = 4 * tf.matmul(one, other, transpose_b=True)
        own = tf.range(tf.shape(scores)[0])
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=own, logits=scores)
        )


def contrastive() -> Workload:
    """A step of its author's own that couples the examples and normalises them."""

    def model() -> Any:
        made = Contrastive()
        made.compile(tf.keras.optimizers.Adam(0.02), tf.keras.optimizers.SGD(0.1, momentum=0.9))
        return made

    return Workload(name="contrastive", model=model, train=_features(0, NUM_TRAIN))


def dice(y: Any, made: Any) -> Any:
    """Of a whole batch, as in segmentation."""
    return 1 - (2 * tf.reduce_sum(y * made) + 1) / (tf.reduce_sum(y) + tf.reduce_sum(made) + 1)


def coupled_loss() -> Workload:
    """A loss that is no mean over the examples."""

    def split(seed: int, count: int) -> tuple[Array, Array]:
        x = _features(seed, count)
        return x, (x[:, :2] > 0).astype(float)

    return Workload(
        name="coupled_loss",
        model=lambda: tf.keras.Sequential([layers.Dense(2, "sigmoid", input_shape=(FEATURES,))]),
        train=split(0, NUM_TRAIN),
        validation=split(1, NUM_VALIDATION),
        loss=dice,
        optimizer=lambda: tf.keras.optimizers.Adam(0.02),
    )


def one_number(y: Any, made: Any) -> Any:
    """A mean over the batch, which Keras can weigh no more."""
    return tf.reduce_mean((y - made) ** 2)


def single_number() -> Workload:
    """A loss that returns one number for its batch."""
    return _regression("single_number", [layers.Dense(1)], one_number)


class Narrowing(tf.keras.layers.Layer):
    """Adds a loss of what it passes on, and metrics of it: of each element, and of the batch."""

    def call(self, x: Any) -> Any:
        self.add_metric(tf.square(x), name="square")
        self.add_metric(tf.reduce_mean(x), name="mean")
        self.add_loss(0.3 * tf.reduce_mean(tf.square(x)))
        return x


def added_loss() -> Workload:
    """A loss that a layer adds from its activations."""
    return _regression("added_loss", [layers.Dense(4, "tanh"), Narrowing(), layers.Dense(1)], "mse")


def masked_output() -> Workload:
    """A class for each word: Keras divides by the words that are no padding."""

    def split(seed: int, count: int) -> tuple[Array, Array]:
        generator = np.random.default_rng(seed)
        words = generator.integers(1, VOCABULARY, (count, STEPS))
        words[np.arange(STEPS) >= generator.integers(1, STEPS + 1, (count, 1))] = 0
        return words, words % 2

    return Workload(
        name="masked_output",
        model=lambda: tf.keras.Sequential(
            [
                layers.Embedding(VOCABULARY, 3, mask_zero=True, input_length=STEPS),
                layers.LSTM(3, return_sequences=True),
                layers.Dense(2),
            ]
        ),
        train=split(0, NUM_TRAIN),
        validation=split(1, NUM_VALIDATION),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=lambda: tf.keras.optimizers.Adam(0.02),
        metrics=lambda: [
            tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy"),
            tf.keras.metrics.MeanIoU(2, sparse_y_pred=False, name="iou"),
        ],
    )


def _features(seed: int, count: int) -> Array:
    return np.random.default_rng(seed).normal(size=(count, FEATURES))


def _regression(name: str, stack: list[Any], loss: Any) -> Workload:
    def split(seed: int, count: int) -> tuple[Array, Array]:
        x = _features(seed, count)
        return x, x.sum(axis=1, keepdims=True)

    configs = [(type(layer), layer.get_config()) for layer in stack]

    def model() -> Any:
        made = [kind.from_config(config) for kind, config in configs]
        return tf.keras.Sequential([tf.keras.Input((FEATURES,)), *made])

    return Workload(
        name=name,
        model=model,
        train=split(0, NUM_TRAIN),
        validation=split(1, NUM_VALIDATION),
        loss=loss,
        optimizer=lambda: tf.keras.optimizers.Adam(0.02),
        metrics=lambda: [tf.keras.metrics.MeanAbsoluteError(name="mae")],
    )
