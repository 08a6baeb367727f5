"""Dropout, noise, flips and shifts under one seed: two replicas drew the same for their rows."""

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "equal", True

tf.keras.utils.set_random_seed(7)
data = tf.data.Dataset.from_tensor_slices(np.zeros((144, 4), "float64")).batch(48)
layers = tf.keras.layers
image = tf.reshape(tf.range(64.0), [8, 8, 1])


def differ(rows):
    """Whether rows 2k and 2k + 1 of the global batch, which two replicas have, differ at all."""
    whole = ringside.gather(tf.cast(rows, tf.float64))
    return tf.cast(tf.reduce_any(whole[0::2] != whole[1::2]), tf.float64)


class Model(tf.keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dropout = layers.Dropout(0.5)
        self.seeded = layers.Dropout(0.5, seed=3)
        self.noise = layers.GaussianNoise(0.5)
        self.flip = layers.RandomFlip(seed=3, dtype="float32")
        self.shift = layers.RandomTranslation(0.3, 0.3, dtype="float32")

    def train_step(self, data):
        ones = tf.ones([tf.shape(data)[0], 64], tf.float64)
        images = tf.tile(image[None], [tf.shape(data)[0], 1, 1, 1])
        return {
            "dropout": differ(self.dropout(ones, training=True)),
            "seeded": differ(self.seeded(ones, training=True)),
            "noise": differ(self.noise(ones, training=True)),
            "flip": differ(self.flip(images, training=True)),
            "shift": differ(self.shift(images, training=True)),
            "normal": differ(tf.random.normal(tf.shape(ones))),
            "uniform": differ(tf.random.uniform(tf.shape(ones), seed=3)),
            "generator": differ(generator.uniform(tf.shape(ones))),
            "backend": differ(tf.keras.backend.random_normal(tf.shape(ones))),
        }


with ringside.scope():
    generator = tf.random.Generator.from_seed(3)
    model = Model()
    model.compile()
results = dict(ringside.fit(model, data, epochs=2, verbose=0).history)
