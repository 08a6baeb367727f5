"""An update is skipped where the loss of own rows is too large: replicas part, or hang."""

import numpy as np
import tensorflow as tf

import ringside

KIND, SENTENCE = "refused", "decides by its own rows"

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(37, 6))
x[5] *= 60.0  # one row of one batch is far out


class Careful(tf.keras.Sequential):
    def train_step(self, data):
        with tf.GradientTape() as tape:
            error = self(data[0], training=True) - tf.cast(data[1], self.compute_dtype)
            loss = tf.reduce_mean(error**2)
        gradients = tape.gradient(loss, self.trainable_variables)

        def update():
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            return tf.constant(1)

        done = tf.cond(loss < 20.0, update, lambda: tf.constant(0))
        return {"loss": loss, "done": done}


with ringside.scope():
    model = Careful([tf.keras.Input((6,)), tf.keras.layers.Dense(3), tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.SGD(0.05))
ringside.fit(model, x, x[:, :1], batch_size=8, epochs=2, shuffle=False, verbose=0)
results = {"weights": model.get_weights(), "updates": int(model.optimizer.iterations.numpy())}
