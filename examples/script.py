"""A training script as people have them; five lines name Ringside.

python examples/script.py --units 32
horovodrun -np 2 python examples/script.py
ringside launch examples/script.py --backend mirrored --replicas 2
ringside verify examples/script.py
"""

import argparse

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import ringside
from ringside import tf

parser = argparse.ArgumentParser()
parser.add_argument("--units", type=int, default=64)
options = parser.parse_args()

digits = load_digits()
x_train, x_test, y_train, y_test = train_test_split(
    digits.data.astype(np.float32) / 16, digits.target, random_state=0
)

with ringside.scope():
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Dense(options.units, activation="relu", input_shape=(64,)),
            tf.keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer="adam",
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )

history = ringside.fit(
    model,
    x_train,
    y_train,
    batch_size=48,
    epochs=20,
    validation_data=(x_test, y_test),
    callbacks=[
        tf.keras.callbacks.ReduceLROnPlateau(monitor="val_loss", patience=2),
        tf.keras.callbacks.EarlyStopping(patience=3, restore_best_weights=True),
    ],
)

if ringside.is_chief():
    print(f"{len(history.epoch)} epochs, accuracy {history.history['val_accuracy'][-1]:.3f}")
