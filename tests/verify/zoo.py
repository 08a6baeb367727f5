"""The zoo: small workloads, one for each thing that a backend may compute in a way of its own.

27 examples in global batches of 12 end with a short one, of which some replicas get nothing. All
numbers come from NumPy's generators. There is no bias before a batch normalisation: its gradient
would be nothing but rounding, which an optimizer such as Adam blows up.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside_core.keras import tf
from ringside_core.workloads.workload import Workload
from tests.verify.zoo_of_batches import (
    added_loss,
    contrastive,
    coupled_loss,
    masked_output,
    single_number,
)

GLOBAL_BATCH = 12
NUM_TRAIN, NUM_VALIDATION = 27, 7
FEATURES, CLASSES, VOCABULARY, STEPS, SIDE = 5, 3, 11, 4, 6
# Far below what the gradients are at the start, so that clipping bites in every update.
CLIP = {"clipnorm": 0.02, "global_clipnorm": 0.05, "clipvalue": 0.005}

Array = NDArray[Any]
Make = Callable[[np.random.Generator, int], Any]


def dense() -> Workload:
    """Two dense layers, plain SGD."""
    return _regression("dense", [_hidden()])


def conv() -> Workload:
    """Convolution and pooling, classes as labels."""
    layers = tf.keras.layers
    return _workload(
        "conv",
        lambda: tf.keras.Sequential(
            [
                layers.Conv2D(4, 3, activation="relu", input_shape=(SIDE, SIDE, 1)),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dense(CLASSES),
            ]
        ),
        lambda generator, count: (generator.normal(size=(count, SIDE, SIDE, 1)), _labels),
        **_CLASSIFICATION,
    )


def embedding() -> Workload:
    """Rows of a table: sparse gradients, with the same row several times in a batch."""
    return _embedding("embedding", lambda: tf.keras.optimizers.Adam(0.02))


def batch_norm() -> Workload:
    """Each replica normalises by the statistics of its own slice."""
    return _batch_norm("batch_norm", synchronized=False)


def sync_batch_norm() -> Workload:
    """All replicas normalise by the statistics of the global batch."""
    return _batch_norm("sync_batch_norm", synchronized=True)


def batch_norm_of_dropout() -> Workload:
    """The statistics are also of what a layer draws for padding."""
    dropout = tf.keras.layers.Dropout
    return _batch_norm("batch_norm_of_dropout", lambda: dropout(0.2), synchronized=False)


def dropout() -> Workload:
    """A layer that draws random numbers."""
    return _regression("dropout", [_hidden(), lambda: tf.keras.layers.Dropout(0.4)])


def lstm() -> Workload:
    """A recurrent layer."""
    return _workload(
        "lstm",
        lambda: tf.keras.Sequential(
            [
                tf.keras.layers.LSTM(4, input_shape=(STEPS, FEATURES)),
                tf.keras.layers.Dense(1),
            ]
        ),
        lambda generator, count: (generator.normal(size=(count, STEPS, FEATURES)), _values),
        **_REGRESSION,
    )


def two_in_two_out() -> Workload:
    """Two inputs and two outputs by name, each output with its loss, its weight and its metric."""
    keras = tf.keras

    def model() -> Any:
        left = keras.Input((FEATURES,), name="left")
        right = keras.Input((2,), name="right")
        both = keras.layers.Concatenate()([keras.layers.Dense(4, "tanh")(left), right])
        return keras.Model(
            {"left": left, "right": right},
            {
                "value": keras.layers.Dense(1, name="value")(both),
                "kind": keras.layers.Dense(CLASSES, name="kind")(both),
            },
        )

    def data(generator: np.random.Generator, count: int) -> Any:
        x = {
            "left": generator.normal(size=(count, FEATURES)),
            "right": generator.normal(size=(count, 2)),
        }
        return x, {"value": _values(generator, count), "kind": _labels(generator, count)}

    return Workload(
        name="two_in_two_out",
        model=model,
        train=data(np.random.default_rng(0), NUM_TRAIN),
        validation=data(np.random.default_rng(1), NUM_VALIDATION),
        loss={
            "value": keras.losses.MeanSquaredError(),
            "kind": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        },
        loss_weights={"value": 0.7, "kind": 1.9},
        optimizer=_sgd,
        metrics=lambda: {
            "value": [keras.metrics.MeanAbsoluteError(name="mae")],
            "kind": [keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        },
    )


def regularised() -> Workload:
    """Losses that come from the weights, and from what a layer gives for each example."""
    of_weights = tf.keras.regularizers.L1L2(l1=0.01, l2=0.03)
    of_outputs = tf.keras.regularizers.L2(0.05)
    return _regression(
        "regularised",
        [
            lambda: tf.keras.layers.Dense(
                4, "tanh", kernel_regularizer=of_weights, activity_regularizer=of_outputs
            )
        ],
    )


def only_added_loss() -> Workload:
    """No labels, and no loss but the one that the model adds from what it makes."""

    def model() -> Any:
        inputs = tf.keras.Input((FEATURES,))
        outputs = tf.keras.layers.Dense(FEATURES)(tf.keras.layers.Dense(2, "tanh")(inputs))
        made = tf.keras.Model(inputs, outputs)
        made.add_loss(tf.reduce_mean((inputs - outputs) ** 2))
        return made

    return _workload(
        "only_added_loss", model, lambda generator, count: (_features(generator, count),)
    )


def clipnorm() -> Workload:
    """The gradient of each variable is clipped by its norm."""
    return _clipped("clipnorm", tf.keras.optimizers.SGD)


def global_clipnorm() -> Workload:
    """All gradients are clipped by their common norm."""
    return _clipped("global_clipnorm", tf.keras.optimizers.SGD)


def clipvalue() -> Workload:
    """Each number of a gradient is clipped."""
    return _clipped("clipvalue", tf.keras.optimizers.SGD)


def legacy_clipnorm() -> Workload:
    """As `clipnorm`, by a legacy optimizer."""
    return _clipped("clipnorm", tf.keras.optimizers.legacy.SGD, "legacy_")


def legacy_global_clipnorm() -> Workload:
    """As `global_clipnorm`, by a legacy optimizer."""
    return _clipped("global_clipnorm", tf.keras.optimizers.legacy.SGD, "legacy_")


def legacy_clipvalue() -> Workload:
    """As `clipvalue`, by a legacy optimizer."""
    return _clipped("clipvalue", tf.keras.optimizers.legacy.SGD, "legacy_")


def weight_decay() -> Workload:
    """Decoupled weight decay, from which the biases are left out."""

    def optimizer() -> Any:
        made = tf.keras.optimizers.AdamW(0.01, weight_decay=0.1)
        made.exclude_from_weight_decay(var_names=["bias"])
        return made

    return _regression("weight_decay", [_hidden()], optimizer)


def sgd_momentum() -> Workload:
    """SGD with momentum."""
    return _regression(
        "sgd_momentum", [_hidden()], lambda: tf.keras.optimizers.SGD(0.05, momentum=0.9)
    )


def sgd_nesterov() -> Workload:
    """SGD with Nesterov's momentum."""
    return _regression(
        "sgd_nesterov",
        [_hidden()],
        lambda: tf.keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    )


def adam() -> Workload:
    """An optimizer that divides by what it has seen of the gradients."""
    return _regression("adam", [_hidden()], lambda: tf.keras.optimizers.Adam(0.02))


def sample_weights() -> Workload:
    """Examples that bring weights of their own, one of them 0; their labels lack the last axis."""
    keras = tf.keras

    def weights(generator: np.random.Generator, count: int) -> Array:
        drawn = generator.uniform(0.2, 3.0, size=count)
        drawn[1] = 0.0
        return drawn

    return _workload(
        "sample_weights",
        lambda: keras.Sequential(
            [keras.Input((FEATURES,)), _hidden()(), keras.layers.Dense(1, "sigmoid")]
        ),
        lambda generator, count: (
            _features(generator, count),
            lambda generator, count: generator.integers(0, 2, count),
            weights,
        ),
        loss=keras.losses.BinaryCrossentropy(),
        metrics=lambda: [
            keras.metrics.Precision(name="precision"),
            keras.metrics.Recall(name="recall"),
            keras.metrics.AUC(name="auc"),
            keras.metrics.BinaryIoU([0, 1], name="iou"),
        ],
    )


def class_weights() -> Workload:
    """Classes that count more or less in training."""
    return _workload(
        "class_weights",
        lambda: _stack([_hidden()], outputs=CLASSES),
        lambda generator, count: (_features(generator, count), _labels),
        class_weight={0: 0.5, 1: 1.0, 2: 3.0},
        **_CLASSIFICATION,
    )


def legacy_optimizer() -> Workload:
    """An optimizer of the kind before Keras 2.11, which Horovod hooks elsewhere."""
    return _regression(
        "legacy_optimizer", [_hidden()], lambda: tf.keras.optimizers.legacy.Adam(0.02)
    )


ZOO: Mapping[str, Callable[[], Workload]] = {
    make.__name__: make
    for make in (
        dense,
        conv,
        embedding,
        batch_norm,
        sync_batch_norm,
        batch_norm_of_dropout,
        dropout,
        lstm,
        two_in_two_out,
        regularised,
        clipnorm,
        global_clipnorm,
        clipvalue,
        legacy_clipnorm,
        legacy_global_clipnorm,
        legacy_clipvalue,
        weight_decay,
        sgd_momentum,
        sgd_nesterov,
        adam,
        sample_weights,
        class_weights,
        legacy_optimizer,
        contrastive,
        coupled_loss,
        single_number,
        added_loss,
        only_added_loss,
        masked_output,
    )
}


# What they are made of


def _workload(name: str, model: Callable[[], Any], data: Make, **others: Any) -> Workload:
    """A workload whose data draw x first, then what functions of the same arguments draw."""

    def split(seed: int, count: int) -> Any:
        generator = np.random.default_rng(seed)
        x, *rest = data(generator, count)
        return (x, *(draw(generator, count) for draw in rest))

    return Workload(
        name=name,
        model=model,
        train=split(0, NUM_TRAIN),
        validation=split(1, NUM_VALIDATION),
        **{"optimizer": _sgd, **others},
    )


def _regression(
    name: str, before: Sequence[Callable[[], Any]], optimizer: Callable[[], Any] | None = None
) -> Workload:
    return _workload(
        name,
        lambda: _stack(before),
        lambda generator, count: (_features(generator, count), _values),
        optimizer=optimizer or _sgd,
        **_REGRESSION,
    )


def _batch_norm(name: str, *before: Callable[[], Any], synchronized: bool) -> Workload:
    keras = tf.keras
    return _regression(
        name,
        [
            lambda: keras.layers.Dense(4, use_bias=False),
            *before,
            # The moving statistics are to move far in a few updates.
            lambda: keras.layers.BatchNormalization(momentum=0.7, synchronized=synchronized),
            lambda: keras.layers.Activation("tanh"),
        ],
        lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    )


def _clipped(by: str, optimizer: Any, prefix: str = "") -> Workload:
    """An embedding: sparse gradients are clipped before rows that come twice are added up."""
    return _embedding(prefix + by, lambda: optimizer(0.5, **{by: CLIP[by]}))


def _embedding(name: str, optimizer: Callable[[], Any]) -> Workload:
    layers = tf.keras.layers
    return _workload(
        name,
        lambda: tf.keras.Sequential(
            [
                layers.Embedding(VOCABULARY, 3, input_length=STEPS),
                layers.Flatten(),
                layers.Dense(CLASSES),
            ]
        ),
        lambda generator, count: (generator.integers(0, VOCABULARY, (count, STEPS)), _labels),
        optimizer=optimizer,
        **_CLASSIFICATION,
    )


def _stack(before: Sequence[Callable[[], Any]], outputs: int = 1) -> Any:
    return tf.keras.Sequential(
        [
            tf.keras.Input((FEATURES,)),
            *[make() for make in before],
            tf.keras.layers.Dense(outputs),
        ]
    )


def _hidden() -> Callable[[], Any]:
    return lambda: tf.keras.layers.Dense(4, "tanh")


def _sgd() -> Any:
    return tf.keras.optimizers.SGD(0.05)


def _features(generator: np.random.Generator, count: int) -> Array:
    return generator.normal(size=(count, FEATURES))


def _values(generator: np.random.Generator, count: int) -> Array:
    return generator.normal(size=(count, 1))


def _labels(generator: np.random.Generator, count: int) -> Array:
    return generator.integers(0, CLASSES, count)


_REGRESSION: Mapping[str, Any] = {
    "loss": tf.keras.losses.MeanSquaredError(),
    "metrics": lambda: [tf.keras.metrics.MeanAbsoluteError(name="mae")],
}
_CLASSIFICATION: Mapping[str, Any] = {
    "loss": tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    "metrics": lambda: [tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
}
