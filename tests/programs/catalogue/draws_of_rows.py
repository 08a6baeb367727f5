"""All that draws, by rows: layers, a step's own noise, generators; also for a last batch of one."""

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "equal", True

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(33, 5, 4))
data = tf.data.Dataset.from_tensor_slices((x, x[:, 0, :1])).batch(8)
layers = tf.keras.layers


class Model(tf.keras.Model):
    def train_step(self, data):
        rows, wanted = data
        shape = tf.shape(rows)
        rows += 0.1 * tf.random.normal(shape, dtype=rows.dtype)
        rows += 0.1 * tf.keras.backend.random_normal(shape)
        rows *= tf.random.uniform(shape[:1], 0.5, 1.5, seed=3, dtype=rows.dtype)[:, None, None]
        rows += 0.1 * tf.random.truncated_normal([4], dtype=rows.dtype)
        rows += tf.cast(tf.random.uniform(shape[:2], 0, 2, tf.int32), rows.dtype)[:, :, None]
        rows += tf.cast(generator.normal(shape), rows.dtype)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.cast(wanted, rows.dtype) - self(rows, training=True)) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"mse": loss}


with ringside.scope():
    generator = tf.random.Generator.from_seed(3)
    given = tf.keras.Input((5, 4))
    made = layers.SpatialDropout1D(0.3)(given)
    made = layers.MultiHeadAttention(2, 3, dropout=0.2)(made, made)
    made = layers.SimpleRNN(6, dropout=0.2, recurrent_dropout=0.3)(layers.GaussianNoise(0.2)(made))
    made = layers.Dropout(0.3, seed=5)(made)
    model = Model(given, layers.Dense(1)(made))
    model.compile(tf.keras.optimizers.SGD(0.05), loss="mse")
history = ringside.fit(model, data, epochs=2, draws=7, verbose=0)
results = {"weights": [w for w in model.get_weights() if w.dtype.kind == "f"], **history.history}
