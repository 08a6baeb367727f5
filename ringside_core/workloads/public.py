"""Public data sets through TFDS: MNIST and flowers."""

from dataclasses import replace
from typing import Any

from ringside_core.folders import default_data_dir
from ringside_core.keras import tf
from ringside_core.workloads.source import StreamSource
from ringside_core.workloads.tfds_data import public_source
from ringside_core.workloads.workload import QualityTarget, Workload


def mnist(data_dir: str | None = None) -> Workload:
    """Handwritten digits of 28×28 pixels (LeCun, Cortes, Burges): 60,000, and 10,000 to test."""
    root = data_dir or str(default_data_dir())
    return Workload(
        name="mnist",
        model=_mnist_model,
        train=public_source("mnist", root, "train"),
        validation=public_source("mnist", root, "test"),
        preprocess=_to_unit_range,
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=lambda: tf.keras.optimizers.Adam(1e-3),
        metrics=lambda: [tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        target=QualityTarget("accuracy", 0.99),
        reference_batch=240,
    )


def tf_flowers(data_dir: str | None = None, image_size: int = 96) -> Workload:
    """Photographs of five kinds of flowers (the TensorFlow team, 2019): 80 % of 3,670 to train."""
    root = data_dir or str(default_data_dir())

    def source(split: str) -> StreamSource:
        raw = public_source("tf_flowers", root, split)
        assert raw.decode is not None
        decode = raw.decode

        def resized(serialized: Any) -> tuple[Any, Any]:
            image, label = decode(serialized)
            image = tf.image.resize(image, (image_size, image_size))
            return tf.cast(tf.round(image), tf.uint8), label

        return replace(raw, decode=resized)

    return Workload(
        name="tf_flowers",
        model=lambda: tf.keras.applications.MobileNetV2(
            input_shape=(image_size, image_size, 3),
            weights=None,
            classes=5,
            classifier_activation=None,
        ),
        train=source("train[:80%]"),
        validation=source("train[80%:]"),
        preprocess=_to_unit_range,
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=lambda: tf.keras.optimizers.Adam(1e-3),
        metrics=lambda: [tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        target=QualityTarget("accuracy", 0.70),
        reference_batch=48,
    )


def _to_unit_range(image: Any, label: Any) -> tuple[Any, Any]:
    return tf.cast(image, tf.keras.backend.floatx()) / 255, label


def _mnist_model() -> Any:
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Conv2D(32, 3, activation="relu", input_shape=(28, 28, 1)),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(10),
        ],
        name="mnist_cnn",
    )
