"""An author's training step, with a tape: an autoencoder and a classifier on its codes.

python examples/own_loop.py
horovodrun -np 2 python examples/own_loop.py
ringside verify examples/own_loop.py
"""

from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import ringside
from ringside import tf

images, labels = load_digits(return_X_y=True)
data = tf.data.Dataset.from_tensor_slices((images.astype(np.float32) / 16, labels))
data = data.shuffle(len(images), seed=1).batch(48)

layers = tf.keras.layers
with ringside.scope():
    encoder = tf.keras.Sequential([layers.Dense(16, activation="tanh", input_shape=(64,))])
    decoder = tf.keras.Sequential([layers.Dense(64, input_shape=(16,))])
    classifier = tf.keras.Sequential([layers.Dense(10, input_shape=(16,))])
    coding_optimizer = tf.keras.optimizers.Adam(0.003)
    classifying_optimizer = tf.keras.optimizers.SGD(0.3)

cross_entropy = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def restoring_loss(x: Any, restored: Any) -> Any:
    """Mean over the pixels, then over the examples."""
    return tf.reduce_mean(tf.math.squared_difference(x, restored))


@ringside.step
@tf.function
def train_step(x: Any, y: Any) -> Any:
    """One update of both."""
    with tf.GradientTape(persistent=True) as tape:
        noisy = x + tf.random.normal(tf.shape(x), stddev=0.1, dtype=x.dtype)
        codes = encoder(noisy, training=True)
        restored = restoring_loss(x, decoder(codes, training=True))
        classified = cross_entropy(y, classifier(tf.stop_gradient(codes), training=True))
    coding = encoder.trainable_variables + decoder.trainable_variables
    coding_optimizer.apply_gradients(zip(tape.gradient(restored, coding), coding, strict=True))
    own = classifier.trainable_variables
    classifying_optimizer.apply_gradients(zip(tape.gradient(classified, own), own, strict=True))
    return {"restored": restored, "classified": classified}


history = ringside.fit(train_step, data, epochs=10)
if ringside.is_chief():
    print({name: round(column[-1], 4) for name, column in history.history.items()})
