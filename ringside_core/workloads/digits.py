"""The embedded default: 1,797 real handwritten digits, 8×8 pixels, from scikit-learn.

Data: E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning
Repository, the copy in sklearn.datasets.load_digits. They are written once as a local TFDS data set
in TFRecord shards, so that the whole way of real data (files, parsing, decoding) is walked.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside_core.folders import cache_dir
from ringside_core.keras import tf
from ringside_core.workloads.source import StreamSource, writable_dir
from ringside_core.workloads.tfds_data import prepared_source
from ringside_core.workloads.workload import QualityTarget, Workload

NUM_SHARDS = 4  # of the training split: more than one, so that files can be shared out
NUM_TRAIN = 1437  # 80 %


def default_data_dir() -> Path:
    """Where Ringside keeps data sets."""
    return cache_dir() / "data"


def digits(data_dir: str | None = None) -> Workload:
    """Digits with a small convolution net; 97 % of 360 held-out digits is the target."""
    root = writable_dir(Path(data_dir) if data_dir else default_data_dir())
    return Workload(
        name="digits",
        model=_model,
        train=digits_source(root, "train"),
        validation=digits_source(root, "test"),
        preprocess=_scale,
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=lambda: tf.keras.optimizers.Adam(2e-3),
        metrics=lambda: [tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        target=QualityTarget("accuracy", 0.97),
        reference_batch=48,
    )


def digits_source(root: Path, split: str) -> StreamSource:
    """One split as a stream over its TFRecord shards; written on first use."""
    from ringside_core.workloads.digits_tfds import (
        RingsideDigits,  # slow to import: tensorflow_datasets
    )

    return prepared_source(RingsideDigits, root, split, num_shards=NUM_SHARDS)


def _scale(image: Any, label: Any) -> tuple[Any, Any]:
    """Pixels 0…16 → 0…1 in the precision of the run; [batch, 8, 8, 1], [batch]."""
    return tf.cast(image, tf.keras.backend.floatx()) / 16, label


def _model() -> Any:
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Conv2D(16, 3, padding="same", activation="relu", input_shape=(8, 8, 1)),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ],
        name="digits_cnn",
    )


def split_digits() -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
    """Images [n, 8, 8, 1] uint8 (0…16) and labels [n] int64 of both splits, in a fixed order.

    The order is that of one NumPy permutation, because the file runs through writers in turn and an
    unshuffled tail would hold other hands than the head.
    """
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(1797).permutation(len(labels))
    images = images.reshape(-1, 8, 8, 1).astype(np.uint8)[order]
    labels = labels.astype(np.int64)[order]
    return {
        "train": (images[:NUM_TRAIN], labels[:NUM_TRAIN]),
        "test": (images[NUM_TRAIN:], labels[NUM_TRAIN:]),
    }
