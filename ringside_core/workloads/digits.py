"""1,797 real handwritten digits, 8×8 pixels, from scikit-learn, with a small and a large net.

Data: E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning
Repository, the copy in sklearn.datasets.load_digits. They are written once as a local TFDS
data set, and read from there into arrays.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from numpy.typing import NDArray

from ringside_core.keras import tf
from ringside_core.workloads.tfds_data import generated
from ringside_core.workloads.workload import QualityTarget, Workload

NUM_TRAIN = 1437  # 80 %


def digits(data_dir: str | None = None) -> Workload:
    """Digits with a small convolution net; 97 % of 360 held-out digits is the target."""
    return _workload("digits", _small, data_dir, target=0.97, reference_batch=48)


def digits_large(data_dir: str | None = None) -> Workload:
    """Digits with a net that has something to compute; 95 % of 360 held-out digits is the target.

    An update of 96 examples is 4 GFLOP for 0.5 MB of gradients: a replica computes for much longer
    than it takes to combine them, so replicas on one machine can gain something. The target is one
    that every seed reaches, also with two asynchronous workers.
    """
    return _workload("digits-large", _large, data_dir, target=0.95, reference_batch=96)


def _workload(
    name: str,
    model: Callable[[], Any],
    data_dir: str | None,
    *,
    target: float,
    reference_batch: int,
) -> Workload:
    return Workload(
        name=name,
        model=model,
        train=_arrays(data_dir, "train"),
        validation=_arrays(data_dir, "test"),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=lambda: tf.keras.optimizers.Adam(2e-3),
        metrics=lambda: [tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        target=QualityTarget("accuracy", target),
        reference_batch=reference_batch,
    )


def _arrays(data_dir: str | None, split: str) -> tuple[Any, Any]:
    """Images [n, 8, 8, 1], 0…1 in the precision of the run, and labels [n]."""
    data = generated(RingsideDigits, data_dir).as_dataset(
        split=split, batch_size=-1, as_supervised=True
    )
    images, labels = tfds.as_numpy(data)
    return images.astype(tf.keras.backend.floatx()) / 16, labels


def _small() -> Any:
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Conv2D(16, 3, padding="same", activation="relu", input_shape=(8, 8, 1)),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            # By any policy the sum is not left in 16 bits.
            layers.Dense(10, dtype=tf.keras.backend.floatx()),
        ],
        name="digits_cnn",
    )


def _large() -> Any:
    layers = tf.keras.layers
    # No normalisation over the batch: each stack would compute another one.
    return tf.keras.Sequential(
        [
            layers.Conv2D(32, 3, padding="same", activation="relu", input_shape=(8, 8, 1)),
            layers.Conv2D(96, 3, padding="same", activation="relu"),
            layers.Conv2D(96, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            # By any policy the sum is not left in 16 bits.
            layers.Dense(10, dtype=tf.keras.backend.floatx()),
        ],
        name="digits_large_cnn",
    )


class RingsideDigits(tfds.core.GeneratorBasedBuilder):
    """scikit-learn's handwritten digits as TFRecord files."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "First."}  # noqa: RUF012  # the base class wants a plain dict

    def _info(self) -> Any:
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Tensor(shape=(8, 8, 1), dtype=tf.uint8),
                    "label": tfds.features.ClassLabel(num_classes=10),
                }
            ),
            supervised_keys=("image", "label"),
            description="1,797 handwritten digits of 8x8 pixels.",
            homepage="https://archive.ics.uci.edu/dataset/80",
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        return {name: self._generate_examples(*arrays) for name, arrays in _splits().items()}

    def _generate_examples(self, images: Any, labels: Any) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            yield number, {"image": image, "label": label}


def _splits() -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
    """Images [n, 8, 8, 1] uint8 (0…16) and labels [n] int64 of both splits, in a fixed order."""
    # The order is that of one NumPy permutation: the file lists one writer after another, so its
    # last part would hold the digits of other people than its first.
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(1797).permutation(len(labels))
    images = images.reshape(-1, 8, 8, 1).astype(np.uint8)[order]
    labels = labels.astype(np.int64)[order]
    return {
        "train": (images[:NUM_TRAIN], labels[:NUM_TRAIN]),
        "test": (images[NUM_TRAIN:], labels[NUM_TRAIN:]),
    }
