"""The learning rate is set in the step from the batch's loss: replicas' rates drift apart."""

import numpy as np
import tensorflow as tf

import ringside

KIND, SENTENCE = "refused", "is written from own rows"

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(37, 6))


class Paced(tf.keras.Sequential):
    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = self.compiled_loss(data[1], self(data[0], training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        rate = self.optimizer.learning_rate
        rate.assign(0.02 * tf.cast(loss, rate.dtype))
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss, "rate": rate}


with ringside.scope():
    model = Paced(
        [tf.keras.Input((6,)), tf.keras.layers.Dense(4, "tanh"), tf.keras.layers.Dense(1)]
    )
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
ringside.fit(model, x, x[:, :1] ** 2, batch_size=8, epochs=2, verbose=0)
results = {"weights": model.get_weights()}
