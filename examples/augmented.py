"""Random augmentation in tf.data, batch normalisation, a schedule, and half precision if asked.

python examples/augmented.py
horovodrun -np 2 python examples/augmented.py --policy mixed_float16
ringside compare examples/augmented.py
"""

import argparse
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import ringside
from ringside import tf

parser = argparse.ArgumentParser()
parser.add_argument("--policy", default="float32")
options = parser.parse_args()
tf.keras.mixed_precision.set_global_policy(options.policy)

images, labels = load_digits(return_X_y=True)
images = images.reshape(-1, 8, 8, 1).astype(np.float32) / 16


def shifted(image: Any, label: Any) -> Any:
    """Moved by up to a pixel, and a little brighter or darker."""
    padded = tf.image.resize_with_crop_or_pad(image, 10, 10)
    return tf.image.random_brightness(tf.image.random_crop(padded, (8, 8, 1)), 0.1), label


data = tf.data.Dataset.from_tensor_slices((images[:1400], labels[:1400]))
data = data.cache().shuffle(1400).map(shifted, num_parallel_calls=tf.data.AUTOTUNE).batch(56)
held_out = tf.data.Dataset.from_tensor_slices((images[1400:], labels[1400:])).batch(56)

layers = tf.keras.layers
with ringside.scope():
    model = tf.keras.Sequential(
        [
            layers.Conv2D(16, 3, use_bias=False, input_shape=(8, 8, 1)),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10),
            layers.Activation("softmax", dtype="float32"),
        ]
    )
    rate = tf.keras.optimizers.schedules.CosineDecay(0.05, decay_steps=8 * 25)
    model.compile(
        tf.keras.optimizers.SGD(rate, momentum=0.9),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )

ringside.fit(model, data, epochs=8, validation_data=held_out)
