"""Callbacks that keep a batch's loss, lower the rate or stop: by own rows they do it elsewhere."""

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "equal", True

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(37, 6))
y = np.sin(3 * x[:, :1])


class LossHistory(tf.keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.losses, self.maes = [], []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(logs["loss"])
        self.maes.append(logs["mae"])


seen = LossHistory()
callbacks = [
    seen,
    tf.keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=1, min_delta=0.05),
    tf.keras.callbacks.EarlyStopping("val_loss", patience=2, restore_best_weights=True),
]
with ringside.scope():
    model = tf.keras.Sequential(
        [tf.keras.Input((6,)), tf.keras.layers.Dense(4, "tanh"), tf.keras.layers.Dense(1)]
    )
    model.compile(tf.keras.optimizers.SGD(0.4), "mse", metrics=["mae"])
history = ringside.fit(
    model, x, y, batch_size=8, epochs=12, validation_split=0.2, callbacks=callbacks, verbose=0
)
rates = history.history.get("lr") or history.history["learning_rate"]
results = {"weights": model.get_weights(), "batch losses": seen.losses, "batch maes": seen.maes}
results |= {"rates": [float(rate) for rate in rates], "val_loss": history.history["val_loss"]}
