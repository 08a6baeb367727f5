r"""TFRecord files of a bucket. TensorFlow 2.21 opens no s3://, so smart_open reads them in Python.

moto_server -p 5555 &          # a bucket on this machine; leave it out where you have one
export AWS_ENDPOINT_URL=http://127.0.0.1:5555 AWS_DEFAULT_REGION=us-east-1 \
    AWS_ACCESS_KEY_ID=any AWS_SECRET_ACCESS_KEY=any
python examples/input/bucket.py --fill
ringside input examples/input/bucket.py --changes interleave,parallel_map,cache
"""

import struct
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import smart_open

import ringside
from ringside import tf

BUCKET, FILES, ROWS = "s3://ringside-example", 8, 64  # rows of a file
Feature, Train = tf.io.FixedLenFeature, tf.train


def fill() -> None:
    """Make the bucket and its files."""
    import boto3

    boto3.client("s3").create_bucket(Bucket=BUCKET.removeprefix("s3://"))
    drawn = np.random.default_rng(0)
    for number in range(FILES):
        with tempfile.NamedTemporaryFile() as here:
            with tf.io.TFRecordWriter(here.name) as writer:
                for image in drawn.integers(256, size=(ROWS, 32, 32, 3)).astype(np.uint8):
                    pixels = Train.BytesList(value=[image.tobytes()])
                    kind = Train.Int64List(value=[int(image.mean() > 127.5)])
                    feature = {
                        "image": Train.Feature(bytes_list=pixels),
                        "kind": Train.Feature(int64_list=kind),
                    }
                    example = Train.Example(features=Train.Features(feature=feature))
                    writer.write(example.SerializeToString())
            with smart_open.open(f"{BUCKET}/{number}.tfrecord", "wb") as there:
                there.write(Path(here.name).read_bytes())


def records(number: int) -> Iterator[bytes]:
    """The records of a file: each is a length, its checksum, data, and their checksum."""
    with smart_open.open(f"{BUCKET}/{number}.tfrecord", "rb") as file:
        while head := file.read(12):
            yield file.read(struct.unpack("<Q4x", head)[0])
            file.read(4)


def of_file(number: tf.Tensor) -> tf.data.Dataset:
    """The records of a file as a data set."""
    return tf.data.Dataset.from_generator(
        records, args=(number,), output_signature=tf.TensorSpec([], tf.string)
    )


def parsed(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """An image and its kind."""
    form = {"image": Feature([], tf.string), "kind": Feature([], tf.int64)}
    row = tf.io.parse_single_example(record, form)
    image = tf.reshape(tf.io.decode_raw(row["image"], tf.uint8), (32, 32, 3))
    return tf.cast(image, tf.float32) / 255, row["kind"]


if "--fill" in sys.argv:
    fill()
    sys.exit()

files = tf.data.Dataset.range(FILES)
rows = files.interleave(of_file, cycle_length=FILES)
rows = rows.apply(tf.data.experimental.assert_cardinality(FILES * ROWS))
data = rows.map(parsed).batch(32)

with ringside.scope():
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            tf.keras.Input((32, 32, 3)),
            layers.Conv2D(8, 3, strides=2, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(2),
        ]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.SGD(0.05), loss, metrics=["accuracy"])

ringside.fit(model, data, epochs=2)
