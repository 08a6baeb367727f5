"""Batch normalisation couples the rows of a batch: other replicas, another training."""

import numpy as np
import tensorflow as tf

import ringside

tf.keras.utils.set_random_seed(5)
x = np.random.default_rng(5).normal(size=(61, 4))
data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).shuffle(61).batch(8)
layers = tf.keras.layers

with ringside.scope():
    model = tf.keras.Sequential(
        [layers.Dense(6, input_shape=(4,)), layers.BatchNormalization(), layers.Dense(1)]
    )
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
ringside.fit(model, data, epochs=2)
