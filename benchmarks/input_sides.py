"""One side of benchmarks/input.py: a process that reads the batches of one data set when asked.

The data sets are written as in the tutorials of TensorFlow, with AUTOTUNE. A side reads them as
they are, or through Ringside.

python -m benchmarks.input_sides <request.json> <socket>
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

import numpy as np

from launch.flags import spec_from_flags
from ringside_core.keras import tf
from ringside_core.specs import InputShard, Surroundings, capabilities_of
from ringside_core.workloads.pipeline import make_pipeline
from ringside_core.workloads.workload import Workload

AUTOTUNE = tf.data.AUTOTUNE
AUTHOR = "author"
EXAMPLES = 4096
_WARM = 0.2  # seconds of a block that do not count: what was prepared before is used up


@dataclass(frozen=True)
class Input:
    """A data set as its author wrote it.

    Attributes:
        data: a folder for files, and the batch → the data set.
        batch: of the author, and the global batch of Ringside.
        cache: whether Ringside may hold the elements in memory.
    """

    data: Callable[[Path, int], Any]
    batch: int
    cache: bool = True


def _arrays(*shape: int) -> tuple[Any, Any]:
    generator = np.random.default_rng(1)
    x = generator.integers(0, 255, (EXAMPLES, *shape), dtype=np.uint8)
    return x, generator.integers(0, 10, EXAMPLES)


def plain_arrays(folder: Path, batch: int) -> Any:
    """Images that are scaled; nothing is random but the order."""
    del folder
    images = tf.data.Dataset.from_tensor_slices(_arrays(64, 64, 3)).shuffle(EXAMPLES).repeat()
    scaled = images.map(
        lambda x, y: (tf.cast(x, tf.float32) / 255.0, y), num_parallel_calls=AUTOTUNE
    )
    return scaled.batch(batch).prefetch(AUTOTUNE)


def random_images(folder: Path, batch: int) -> Any:
    """tf.image.random_* over single images, as in the tutorial on data augmentation."""
    del folder

    def augment(x: Any, y: Any) -> tuple[Any, Any]:
        x = tf.image.resize_with_crop_or_pad(tf.cast(x, tf.float32) / 255.0, 40, 40)
        x = tf.image.random_flip_left_right(tf.image.random_crop(x, (32, 32, 3)))
        return tf.clip_by_value(tf.image.random_brightness(x, 0.5), 0.0, 1.0), y

    images = tf.data.Dataset.from_tensor_slices(_arrays(32, 32, 3)).shuffle(1000).repeat()
    return images.map(augment, num_parallel_calls=AUTOTUNE).batch(batch).prefetch(AUTOTUNE)


def layers_of_images(folder: Path, batch: int) -> Any:
    """Keras' layers over single images."""
    return _by_layers(folder, batch, of_batches=False)


def layers_of_batches(folder: Path, batch: int) -> Any:
    """Keras' layers over batches, as in the tutorial on data augmentation."""
    return _by_layers(folder, batch, of_batches=True)


def _by_layers(folder: Path, batch: int, *, of_batches: bool) -> Any:
    del folder
    layers = tf.keras.Sequential(
        [
            tf.keras.layers.Rescaling(1 / 255),
            tf.keras.layers.RandomFlip("horizontal"),
            tf.keras.layers.RandomRotation(0.2),
        ]
    )
    layers(np.zeros((1, 32, 32, 3), np.float32))
    images = tf.data.Dataset.from_tensor_slices(_arrays(32, 32, 3)).shuffle(1000).repeat()

    def augment(x: Any, y: Any) -> tuple[Any, Any]:
        return layers(tf.cast(x, tf.float32), training=True), y

    if of_batches:
        images = images.batch(batch).map(augment, num_parallel_calls=AUTOTUNE)
    else:
        images = images.map(augment, num_parallel_calls=AUTOTUNE).batch(batch)
    return images.prefetch(AUTOTUNE)


def jpeg_records(folder: Path, batch: int) -> Any:
    """JPEG images in TFRecord files, as in the tutorial on TFRecord."""

    def parse(record: Any) -> tuple[Any, Any]:
        form = {
            "image": tf.io.FixedLenFeature([], tf.string),
            "label": tf.io.FixedLenFeature([], tf.int64),
        }
        parsed = tf.io.parse_single_example(record, form)
        image = tf.io.decode_jpeg(parsed["image"], channels=3)
        return tf.ensure_shape(tf.cast(image, tf.float32) / 255.0, (96, 96, 3)), parsed["label"]

    records = tf.data.TFRecordDataset(_record_files(folder), num_parallel_reads=AUTOTUNE)
    images = records.shuffle(2048).repeat().map(parse, num_parallel_calls=AUTOTUNE)
    return images.batch(batch).prefetch(AUTOTUNE)


def _record_files(folder: Path, files: int = 4) -> list[str]:
    """Files with EXAMPLES smooth images, which JPEG makes about as small as photographs."""
    generator = np.random.default_rng(1)
    names = [str(folder / f"{number}.tfrecord") for number in range(files)]
    for name in names:
        with tf.io.TFRecordWriter(name) as writer:
            coarse = generator.integers(0, 255, (EXAMPLES // files, 12, 12, 3))
            images = tf.cast(tf.image.resize(coarse, (96, 96), method="bicubic"), tf.uint8)
            for image in images:
                jpeg = tf.io.encode_jpeg(image).numpy()
                feature = {
                    "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[jpeg])),
                    "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[1])),
                }
                example = tf.train.Example(features=tf.train.Features(feature=feature))
                writer.write(example.SerializeToString())
    return names


def generated(folder: Path, batch: int) -> Any:
    """Rows that Python code gives one by one."""
    del folder
    rows = np.random.default_rng(1).normal(size=(EXAMPLES, 64)).astype(np.float32)

    def give() -> Iterator[tuple[Any, int]]:
        for number, row in enumerate(rows):
            yield row, number % 10

    form = (tf.TensorSpec((64,), tf.float32), tf.TensorSpec((), tf.int64))
    given = tf.data.Dataset.from_generator(give, output_signature=form)
    return given.shuffle(1000).repeat().batch(batch).prefetch(AUTOTUNE)


INPUTS = {
    "arrays": Input(plain_arrays, 128),
    "tf.image": Input(random_images, 64),
    "layers of images": Input(layers_of_images, 32),
    "layers of batches": Input(layers_of_batches, 32),
    "layers of batches of 16": Input(layers_of_batches, 16),
    "TFRecord": Input(jpeg_records, 32, cache=False),
    "generator": Input(generated, 64),
    "generator streamed": Input(generated, 64, cache=False),
}


def _through_ringside(data: Any, asked: Input, replicas: int, cores: int) -> Any:
    """The batches of one process with so many replicas, all of them sharing the cores."""
    backend = "mirrored" if replicas > 1 else "serial"
    spec = spec_from_flags(
        Surroundings(),
        backend=backend,
        replicas=replicas,
        global_batch=asked.batch,
        cache=asked.cache,
        cores_per_replica=max(1, cores // replicas),
    )
    workload = Workload("input", tf.keras.Sequential, data, loss="mse", optimizer="sgd")
    pipeline = make_pipeline(spec, workload, capabilities_of(backend), training=True)
    return pipeline.dataset(InputShard(index=0, count=1))


def _block(batches: Iterator[Any], seconds: float) -> tuple[float, float]:
    """Read for so long; examples a second, and examples a second of CPU time."""
    end = time.monotonic() + _WARM
    while time.monotonic() < end:
        next(batches)
    examples, began, cpu = 0, time.monotonic(), time.process_time()
    while time.monotonic() < began + seconds:
        examples += int(next(batches)[0].shape[0])
    return examples / (time.monotonic() - began), examples / (time.process_time() - cpu)


def main() -> None:
    """Make the side, read a first block, and then one for each number of seconds that comes."""
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    asked, side = INPUTS[request["input"]], request["side"]
    dataset = asked.data(Path(sys.argv[1]).parent, asked.batch)
    if side != AUTHOR:
        cores = len(os.sched_getaffinity(0))
        dataset = _through_ringside(dataset, asked, int(side), cores)
    batches = iter(dataset)
    with Client(sys.argv[2], family="AF_UNIX") as parent:
        while True:
            parent.send(_block(batches, parent.recv()))


if __name__ == "__main__":
    main()
