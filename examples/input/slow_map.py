r"""A training that waits for its data: a map that costs more than the step.

ringside input examples/input/slow_map.py --budget 6m
ringside compare examples/input/slow_map.py --replicas 1 --all-arms \
    --backends serial,serial:input=arrays,mirrored
"""

import numpy as np

import ringside
from ringside import tf

drawn = np.random.default_rng(0)
images = drawn.integers(256, size=(512, 48, 48, 3)).astype(np.uint8)
kinds = (images.mean(axis=(1, 2, 3)) > 127.5).astype(np.int32)


def blurred(image: tf.Tensor, kind: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """An image at four scales: work for each row in each epoch."""
    pixels = tf.cast(image, tf.float32) / 255
    for size in (40, 32, 24, 16):
        small = tf.image.resize(pixels, (size, size), method="bicubic", antialias=True)
        pixels = (pixels + tf.image.resize(small, (48, 48), method="bicubic")) / 2
    return pixels, kind


data = tf.data.Dataset.from_tensor_slices((images, kinds)).map(blurred).batch(32)

with ringside.scope():
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            tf.keras.Input((48, 48, 3)),
            layers.Conv2D(8, 5, strides=2, activation="relu"),
            layers.Conv2D(16, 3, strides=2, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(2),
        ]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.SGD(0.05), loss, metrics=["accuracy"])

ringside.fit(model, data, epochs=2)
