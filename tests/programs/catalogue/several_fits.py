"""Two fits of a model with others' calls between: the second goes on where the first ended."""

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "equal", True

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(37, 6))
y = x[:, :1] ** 2
results = {"predicted": []}


class Predicting(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        results["predicted"].append(self.model.predict(x[:11], batch_size=5, verbose=0))


with ringside.scope():
    model = tf.keras.Sequential(
        [tf.keras.Input((6,)), tf.keras.layers.Dense(4, "tanh"), tf.keras.layers.Dense(1)]
    )
    model.compile(tf.keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
first = ringside.fit(model, x, y, batch_size=8, epochs=2, callbacks=[Predicting()], verbose=0)
results["evaluated"] = model.evaluate(x[:11], y[:11], batch_size=5, verbose=0)
results["batch"] = [model.train_on_batch(x[:5], y[:5]) for _ in range(2)]
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(37).batch(12)
second = ringside.fit(model, data, epochs=2, verbose=0)
results |= {"weights": model.get_weights(), "updates": int(model.optimizer.iterations.numpy())}
results |= {f"first {name}": values for name, values in first.history.items()}
results |= {f"second {name}": values for name, values in second.history.items()}
