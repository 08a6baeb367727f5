"""What the benchmarks train: each model and its data set, as in TensorFlow's tutorials.

Both sides call these functions. Nothing of Ringside is imported: a script gives its own
TensorFlow, with legacy Keras or Keras 3.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

# Rows of a data set → those that a process reads.
Divided = Callable[[Any], Any]


def whole(rows: Any) -> Any:
    """All rows: one process reads them, or a strategy divides their batches."""
    return rows


@dataclass(frozen=True)
class Program:
    """A model and an endless data set.

    Attributes:
        model: TensorFlow → (layers of a Sequential, or a model; optimizer; loss).
        data: (TensorFlow, batch, divided) → batches of images or rows and labels.
        batch: examples in one update, of all replicas together.
        steps: updates in an epoch.
        metrics: of `compile`.
        draws: the maps of its data do, so that `ringside.shard` does not divide them.
        as_shipped: both sides run with the threads, processors and memory that they take by
            themselves; else both are pinned and set the same.
    """

    model: Callable[[Any], tuple[Any, Any, Any]]
    data: Callable[[Any, int, Divided], Any]
    batch: int
    steps: int
    metrics: tuple[str, ...] = ()
    as_shipped: bool = False
    draws: bool = False

    def compiled(self, tf: Any, wrap: Any = lambda optimizer: optimizer, kind: Any = None) -> Any:
        """The model, ready for `fit`; called in a strategy's scope.

        Args:
            tf: TensorFlow.
            wrap: what is done with the optimizer.
            kind: another class of the model.
        """
        tf.keras.utils.set_random_seed(1)  # so both sides begin with the same weights
        net, optimizer, loss = self.model(tf)
        model = net if isinstance(net, tf.keras.Model) else tf.keras.Sequential(net)
        if kind is not None:
            model = kind(model.inputs, model.outputs)
        model.compile(wrap(optimizer), loss, metrics=[*self.metrics])
        return model


def _endless(
    tf: Any, rows: Any, batch: int, divided: Divided, *, seen: int, change: Any = None
) -> Any:
    """Shuffled among so many, changed one by one, in batches, prepared ahead."""
    rows = divided(rows.shuffle(seen, seed=1).repeat())
    if change is not None:
        rows = rows.map(change, num_parallel_calls=tf.data.AUTOTUNE)
    return rows.batch(batch).prefetch(tf.data.AUTOTUNE)


def _scaled(tf: Any, largest: float) -> Any:
    return lambda image, label: (tf.cast(image, tf.float32) / largest, label)


def _crossentropy(tf: Any, *, from_logits: bool = True) -> Any:
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=from_logits)


# What is trained


def _digits_model(tf: Any) -> tuple[Any, Any, Any]:
    layers = tf.keras.layers
    net = [
        layers.InputLayer((8, 8, 1)),
        layers.Conv2D(16, 3, padding="same", activation="relu"),
        layers.Conv2D(32, 3, padding="same", activation="relu"),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(64, activation="relu"),
        layers.Dense(10),
    ]
    return net, tf.keras.optimizers.Adam(2e-3), _crossentropy(tf)


def _digits(tf: Any, batch: int, divided: Divided) -> Any:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images = images[:1440].reshape(-1, 8, 8, 1).astype(np.uint8)
    rows = tf.data.Dataset.from_tensor_slices((images, labels[:1440].astype(np.int64)))
    return _endless(tf, rows, batch, divided, seen=1440, change=_scaled(tf, 16))


def _conv_model(tf: Any) -> tuple[Any, Any, Any]:
    layers = tf.keras.layers
    net = [
        layers.InputLayer((32, 32, 3)),
        layers.Conv2D(32, 3, padding="same", activation="relu"),
        layers.Conv2D(32, 3, padding="same", strides=2, activation="relu"),
        layers.Conv2D(32, 3, padding="same", strides=2, activation="relu"),
        layers.GlobalAveragePooling2D(),
        layers.Dense(10),
    ]
    return net, tf.keras.optimizers.SGD(0.01, momentum=0.9), _crossentropy(tf)


def _conv(tf: Any, batch: int, divided: Divided) -> Any:
    rows = tf.data.Dataset.from_tensor_slices(_images(768, 32))
    return _endless(tf, rows, batch, divided, seen=768, change=_scaled(tf, 255))


def _mobilenet_model(tf: Any) -> tuple[Any, Any, Any]:
    net = tf.keras.applications.MobileNetV2(input_shape=(64, 64, 3), weights=None)
    return net, tf.keras.optimizers.SGD(0.01), _crossentropy(tf, from_logits=False)


def _mobilenet(tf: Any, batch: int, divided: Divided) -> Any:
    """One global batch in memory, again and again, as in Horovod's synthetic benchmark."""
    draw = np.random.default_rng(1)
    images = draw.uniform(size=(32, 64, 64, 3)).astype(np.float32)
    rows = tf.data.Dataset.from_tensor_slices((images, draw.integers(0, 999, (32, 1))))
    return divided(rows).cache().repeat().batch(batch)


# What is read: by a model that costs next to nothing


def _reader(*shape: int) -> Callable[[Any], tuple[Any, Any, Any]]:
    def model(tf: Any) -> tuple[Any, Any, Any]:
        layers = tf.keras.layers
        net = [
            layers.InputLayer(shape),
            layers.Flatten(),
            layers.Dense(1, kernel_initializer="zeros"),
        ]
        return net, tf.keras.optimizers.SGD(1e-6), "mse"

    return model


def _images(count: int, size: int) -> tuple[Any, Any]:
    draw = np.random.default_rng(1)
    images = draw.integers(0, 255, (count, size, size, 3), dtype=np.uint8)
    return images, draw.integers(0, 10, count)


def _arrays(tf: Any, batch: int, divided: Divided) -> Any:
    """Images that are scaled; nothing is random but the order."""
    rows = tf.data.Dataset.from_tensor_slices(_images(4096, 64))
    return _endless(tf, rows, batch, divided, seen=4096, change=_scaled(tf, 255))


def _augmented(tf: Any, batch: int, divided: Divided) -> Any:
    """tf.image.random_* over single images, as in the tutorial on data augmentation."""

    def augment(x: Any, y: Any) -> tuple[Any, Any]:
        x = tf.image.resize_with_crop_or_pad(tf.cast(x, tf.float32) / 255.0, 40, 40)
        x = tf.image.random_flip_left_right(tf.image.random_crop(x, (32, 32, 3)))
        return tf.clip_by_value(tf.image.random_brightness(x, 0.5), 0.0, 1.0), y

    rows = tf.data.Dataset.from_tensor_slices(_images(4096, 32))
    return _endless(tf, rows, batch, divided, seen=1000, change=augment)


def _layers(tf: Any, batch: int, divided: Divided) -> Any:
    """Keras' layers over batches, as in the tutorial on data augmentation."""
    layers = tf.keras.Sequential(
        [
            tf.keras.layers.Rescaling(1 / 255),
            tf.keras.layers.RandomFlip("horizontal"),
            tf.keras.layers.RandomRotation(0.2),
        ]
    )
    layers(np.zeros((1, 32, 32, 3), np.float32))
    rows = tf.data.Dataset.from_tensor_slices(_images(4096, 32))
    batches = divided(rows.shuffle(1000, seed=1).repeat()).batch(batch)
    batches = batches.map(
        lambda x, y: (layers(tf.cast(x, tf.float32), training=True), y),
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    return batches.prefetch(tf.data.AUTOTUNE)


def _records(tf: Any, batch: int, divided: Divided) -> Any:
    """JPEG images in TFRecord files, as in the tutorial on TFRecord."""
    form = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }

    def parse(record: Any) -> tuple[Any, Any]:
        parsed = tf.io.parse_single_example(record, form)
        image = tf.io.decode_jpeg(parsed["image"], channels=3)
        return tf.ensure_shape(tf.cast(image, tf.float32) / 255.0, (96, 96, 3)), parsed["label"]

    rows = tf.data.TFRecordDataset(_record_files(tf), num_parallel_reads=tf.data.AUTOTUNE)
    return _endless(tf, rows, batch, divided, seen=1024, change=parse)


_folders: list[TemporaryDirectory] = []  # removed with the process


def _record_files(tf: Any, files: int = 4, images: int = 512) -> list[str]:
    """Files with so many smooth images each, which JPEG makes about as small as photographs."""
    _folders.append(TemporaryDirectory(prefix="records-"))
    names = [str(Path(_folders[-1].name) / f"{number}.tfrecord") for number in range(files)]
    draw = np.random.default_rng(1)
    for name in names:
        coarse = draw.integers(0, 255, (images, 12, 12, 3))
        smooth = tf.cast(tf.image.resize(coarse, (96, 96), method="bicubic"), tf.uint8)
        with tf.io.TFRecordWriter(name) as writer:
            for image in smooth:
                jpeg = tf.train.BytesList(value=[tf.io.encode_jpeg(image).numpy()])
                label = tf.train.Int64List(value=[1])
                feature = {
                    "image": tf.train.Feature(bytes_list=jpeg),
                    "label": tf.train.Feature(int64_list=label),
                }
                example = tf.train.Example(features=tf.train.Features(feature=feature))
                writer.write(example.SerializeToString())
    return names


def _generator(tf: Any, batch: int, divided: Divided) -> Any:
    """Rows that Python code gives one by one."""
    numbers = np.random.default_rng(1).normal(size=(4096, 64)).astype(np.float32)

    def give() -> Iterator[tuple[Any, int]]:
        for number, row in enumerate(numbers):
            yield row, number % 10

    form = (tf.TensorSpec((64,), tf.float32), tf.TensorSpec((), tf.int64))
    rows = tf.data.Dataset.from_generator(give, output_signature=form)
    return _endless(tf, rows, batch, divided, seen=1000)


MODELS = {
    "digits": Program(_digits_model, _digits, batch=48, steps=60, metrics=("accuracy",)),
    "conv": Program(_conv_model, _conv, batch=48, steps=32, metrics=("accuracy",)),
    "mobilenet": Program(_mobilenet_model, _mobilenet, batch=32, steps=4, as_shipped=True),
}
INPUTS = {
    "arrays": Program(_reader(64, 64, 3), _arrays, batch=128, steps=32),
    "tf.image": Program(_reader(32, 32, 3), _augmented, batch=64, steps=64, draws=True),
    "layers": Program(_reader(32, 32, 3), _layers, batch=32, steps=128, draws=True),
    "TFRecord": Program(_reader(96, 96, 3), _records, batch=32, steps=64),
    "generator": Program(_reader(64), _generator, batch=64, steps=16),
}
PROGRAMS = {**MODELS, **INPUTS}
