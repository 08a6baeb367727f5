"""The TFDS builder of `digits`; apart from it because tensorflow_datasets is slow to import."""

from collections.abc import Iterator
from typing import Any

import tensorflow_datasets as tfds

from ringside_core.keras import tf
from ringside_core.workloads.digits import split_digits


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
        del dl_manager  # the data come with scikit-learn
        return {name: self._generate_examples(*arrays) for name, arrays in split_digits().items()}

    def _generate_examples(self, images: Any, labels: Any) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            yield number, {"image": image, "label": label}
