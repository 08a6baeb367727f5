"""Public data sets through TFDS: MNIST and flowers."""

from collections.abc import Callable
from typing import Any

from ringside_core.keras import tf
from ringside_core.workloads.tfds_data import public
from ringside_core.workloads.workload import QualityTarget, Workload


def mnist(data_dir: str | None = None, global_batch: int = 240) -> Workload:
    """Handwritten digits of 28×28 pixels (LeCun, Cortes, Burges): 60,000, and 10,000 to test."""
    builder = public("mnist", data_dir)
    return Workload(
        name="mnist",
        model=_mnist_model,
        train=_batches(builder, "train", global_batch),
        validation=_batches(builder, "test", global_batch),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=lambda: tf.keras.optimizers.Adam(1e-3),
        metrics=lambda: [tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        target=QualityTarget("accuracy", 0.99),
        reference_batch=240,
    )


def tf_flowers(
    data_dir: str | None = None, image_size: int = 96, global_batch: int = 48
) -> Workload:
    """Photographs of five kinds of flowers (the TensorFlow team, 2019): 80 % of 3,670 to train."""
    builder = public("tf_flowers", data_dir)

    def resized(image: Any, label: Any) -> tuple[Any, Any]:
        image = tf.image.resize(image, (image_size, image_size))
        return tf.cast(tf.round(image), tf.uint8), label

    return Workload(
        name="tf_flowers",
        model=lambda: tf.keras.applications.MobileNetV2(
            input_shape=(image_size, image_size, 3),
            weights=None,
            classes=5,
            classifier_activation=None,
        ),
        train=_batches(builder, "train[:80%]", global_batch, resized),
        validation=_batches(builder, "train[80%:]", global_batch, resized),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=lambda: tf.keras.optimizers.Adam(1e-3),
        metrics=lambda: [tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        target=QualityTarget("accuracy", 0.70),
        reference_batch=48,
    )


def _batches(builder: Any, split: str, batch: int, change: Callable[..., Any] | None = None) -> Any:
    """Batches of images and labels; those of training in another order in each epoch."""
    data = builder.as_dataset(split=split, as_supervised=True)
    if change is not None:
        data = data.map(change, num_parallel_calls=tf.data.AUTOTUNE)
    if split.startswith("train") and not split.endswith(":]"):
        data = data.shuffle(10_000)
    return data.batch(batch).map(_to_unit_range).prefetch(2)


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
