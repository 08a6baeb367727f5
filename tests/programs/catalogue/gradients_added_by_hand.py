"""A step for a strategy: it adds gradients itself, clips their sum and skips Keras' own sum."""

import numpy as np
import tensorflow as tf

import ringside

KIND, SENTENCE = "refused", "a step must not do it too"

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(35, 6))


class Clipped(tf.keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        own = self.trainable_variables
        context = tf.distribute.get_replica_context()
        found = context.all_reduce(tf.distribute.ReduceOp.SUM, tape.gradient(loss, own))
        found, _ = tf.clip_by_global_norm(found, 0.5)
        self.optimizer.apply_gradients(
            zip(found, own, strict=True), skip_gradients_aggregation=True
        )
        return {"loss": loss}


with ringside.scope():
    given = tf.keras.Input((6,))
    model = Clipped(given, tf.keras.layers.Dense(1)(given))
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
history = ringside.fit(model, x, x[:, :1], batch_size=8, epochs=2, verbose=0)
results = {"weights": model.get_weights(), **history.history}
