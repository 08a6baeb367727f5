"""Two stages: a classifier on a frozen network, then all of it at a smaller rate.

python examples/fine_tune.py
ringside launch examples/fine_tune.py --backend mirrored --replicas 2
"""

import numpy as np
from sklearn.datasets import load_digits

import ringside
from ringside import tf

images, labels = load_digits(return_X_y=True)
images = images.astype(np.float32) / 16
small, large = labels < 5, labels >= 5  # the network learns the first, and is tuned for the others

layers = tf.keras.layers
with ringside.scope():
    network = tf.keras.Sequential([layers.Dense(32, activation="relu", input_shape=(64,))])
    first = tf.keras.Sequential([network, layers.Dense(5, activation="softmax")])
    first.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
ringside.fit(first, images[small], labels[small], batch_size=40, epochs=5, verbose=0)

network.trainable = False
with ringside.scope():
    model = tf.keras.Sequential([network, layers.Dense(5, activation="softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
arguments = {"batch_size": 40, "validation_split": 0.2}
history = ringside.fit(model, images[large], labels[large] - 5, epochs=5, **arguments)

network.trainable = True
with ringside.scope():
    rate = 1e-4
    model.compile(
        tf.keras.optimizers.Adam(rate), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
ringside.fit(
    model,
    images[large],
    labels[large] - 5,
    initial_epoch=history.epoch[-1] + 1,
    epochs=8,
    callbacks=[tf.keras.callbacks.ModelCheckpoint("tuned.keras", save_best_only=True)],
    **arguments,
)
