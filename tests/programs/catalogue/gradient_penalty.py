"""A penalty on a gradient by the inputs: its inner tape is no training, and is left alone."""

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "equal", True

tf.keras.utils.set_random_seed(7)
rng = np.random.default_rng(3)
real, fake = rng.normal(size=(37, 4)), 0.3 * rng.normal(size=(37, 4))


class Critic(tf.keras.Sequential):
    def train_step(self, data):
        real, fake = (tf.cast(part, self.compute_dtype) for part in data)
        mixed = 0.4 * real + 0.6 * fake
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self(fake)) - tf.reduce_mean(self(real))
            with tf.GradientTape() as inner:
                inner.watch(mixed)
                score = self(mixed, training=True)
            slopes = inner.gradient(score, mixed)
            norm = tf.sqrt(tf.reduce_sum(slopes**2, axis=1))
            loss += 10.0 * tf.reduce_mean((norm - 1.0) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


with ringside.scope():
    model = Critic(
        [tf.keras.Input((4,)), tf.keras.layers.Dense(8, "tanh"), tf.keras.layers.Dense(1)]
    )
    model.compile(tf.keras.optimizers.Adam(0.01), loss="mse")
ringside.fit(model, real, fake, batch_size=8, epochs=2, verbose=0)
results = {"weights": model.get_weights()}
