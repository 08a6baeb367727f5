"""A step without a Keras model: two optimizers, a tape that is asked twice, 8 rows and 3."""

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "equal", True

tf.keras.utils.set_random_seed(7)
rng = np.random.default_rng(3)
x, y = rng.normal(size=(35, 6)), rng.integers(0, 3, 35)
# Keras makes more iterators than a loop does, and each takes the next order of a shuffle.
data = tf.data.Dataset.from_tensor_slices((x, y))
data = data.shuffle(35, reshuffle_each_iteration=False).batch(8)
layers = tf.keras.layers

with ringside.scope():
    encoder = tf.keras.Sequential([tf.keras.Input((6,)), layers.Dense(3, activation="tanh")])
    decoder = tf.keras.Sequential([tf.keras.Input((3,)), layers.Dense(6)])
    classifier = tf.keras.Sequential([tf.keras.Input((3,)), layers.Dense(3)])
    coding = tf.keras.optimizers.Adam(0.01)
    classifying = tf.keras.optimizers.SGD(0.3)
cross_entropy = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@ringside.step
@tf.function
def train_step(rows, labels):
    """One update of both."""
    with tf.GradientTape(persistent=True) as tape:
        codes = encoder(rows, training=True)
        errors = (tf.cast(rows, codes.dtype) - decoder(codes, training=True)) ** 2
        restored = tf.reduce_mean(errors)
        classified = cross_entropy(labels, classifier(tf.stop_gradient(codes), training=True))
    own = encoder.trainable_variables + decoder.trainable_variables
    coding.apply_gradients(zip(tape.gradient(restored, own), own, strict=True))
    own = classifier.trainable_variables
    classifying.apply_gradients(zip(tape.gradient(classified, own), own, strict=True))
    return {"restored": restored, "classified": classified}


ringside.fit(train_step, data, epochs=2)
models = {"encoder": encoder, "decoder": decoder, "classifier": classifier}
results = {name: model.get_weights() for name, model in models.items()}
