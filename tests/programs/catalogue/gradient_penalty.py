"""A penalty on a gradient by the inputs: its inner tape is no training, and is left alone.

The model has no `call`, so Keras 3 makes the metrics of `compile` in the first step.
"""

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "equal", True

tf.keras.utils.set_random_seed(7)
rng = np.random.default_rng(3)
real, fake = rng.normal(size=(37, 4)), 0.3 * rng.normal(size=(37, 4))


class Critic(tf.keras.Model):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def train_step(self, data):
        real, fake = (tf.cast(part, self.compute_dtype) for part in data)
        mixed = 0.4 * real + 0.6 * fake
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self.net(fake)) - tf.reduce_mean(self.net(real))
            with tf.GradientTape() as inner:
                inner.watch(mixed)
                score = self.net(mixed, training=True)
            slopes = inner.gradient(score, mixed)
            norm = tf.sqrt(tf.reduce_sum(slopes**2, axis=1))
            loss += 10.0 * tf.reduce_mean((norm - 1.0) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {**self.compute_metrics(real, real[:, :1], self.net(real), None), "loss": loss}


with ringside.scope():
    layers = tf.keras.layers
    net = tf.keras.Sequential([tf.keras.Input((4,)), layers.Dense(8, "tanh"), layers.Dense(1)])
    model = Critic(net)
    model.compile(tf.keras.optimizers.Adam(0.01), loss="mse", metrics=["mae"])
history = ringside.fit(model, real, fake, batch_size=8, epochs=2, verbose=0)
results = {"weights": net.get_weights(), **history.history}
