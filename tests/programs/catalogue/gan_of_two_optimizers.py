"""Two optimizers in a step, the second after new predictions: each adds its own gradients once."""

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "equal", True

tf.keras.utils.set_random_seed(7)
rng = np.random.default_rng(3)
real, noise = rng.normal(size=(35, 4)), rng.normal(size=(35, 2))
layers = tf.keras.layers


class GAN(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.critic = tf.keras.Sequential(
            [tf.keras.Input((4,)), layers.Dense(6, "tanh"), layers.Dense(1)]
        )
        self.maker = tf.keras.Sequential(
            [tf.keras.Input((2,)), layers.Dense(6, "tanh"), layers.Dense(4)]
        )
        self.results = [tf.keras.metrics.Mean(name=name) for name in ("critic_loss", "maker_loss")]

    def compile(self, critic_optimizer, maker_optimizer):
        super().compile()
        self.critic_optimizer, self.maker_optimizer = critic_optimizer, maker_optimizer
        self.loss_fn = tf.keras.losses.BinaryCrossentropy(from_logits=True)

    @property
    def metrics(self):
        return self.results

    def train_step(self, data):
        real, noise = data
        both = tf.concat([self.maker(noise), tf.cast(real, self.compute_dtype)], axis=0)
        rows = tf.shape(real)[0]
        labels = tf.concat([tf.ones((rows, 1)), tf.zeros((rows, 1))], axis=0)
        with tf.GradientTape() as tape:
            critic_loss = self.loss_fn(labels, self.critic(both))
        own = self.critic.trainable_variables
        self.critic_optimizer.apply_gradients(
            zip(tape.gradient(critic_loss, own), own, strict=True)
        )
        with tf.GradientTape() as tape:
            maker_loss = self.loss_fn(tf.zeros((rows, 1)), self.critic(self.maker(noise)))
        own = self.maker.trainable_variables
        self.maker_optimizer.apply_gradients(zip(tape.gradient(maker_loss, own), own, strict=True))
        for metric, value in zip(self.results, (critic_loss, maker_loss), strict=True):
            metric.update_state(value)
        return {metric.name: metric.result() for metric in self.results}


with ringside.scope():
    model = GAN()
    model.compile(tf.keras.optimizers.Adam(0.01), tf.keras.optimizers.SGD(0.1))
data = tf.data.Dataset.from_tensor_slices((real, noise)).shuffle(35).batch(8)
history = ringside.fit(model, data, epochs=2, verbose=0)
results = {"critic": model.critic.get_weights(), "maker": model.maker.get_weights()}
results |= history.history
