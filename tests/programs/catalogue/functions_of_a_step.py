"""A step calls functions that are traced by themselves, and tells numbers of another type."""

import numpy as np
import tensorflow as tf

import ringside

KIND, KERAS3 = "equal", True

tf.keras.utils.set_random_seed(7)
x = np.random.default_rng(3).normal(size=(35, 6))


class Model(tf.keras.Model):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.tracker = tf.keras.metrics.Mean(name="loss")
        self.late = tf.keras.metrics.Mean(name="late")

    @tf.function
    def losses(self, rows, wanted):
        """A loss of each row; its mean is counted in training and in evaluation."""
        losses = tf.reduce_mean((tf.cast(wanted, self.compute_dtype) - self(rows)) ** 2, -1)
        self.tracker.update_state(tf.reduce_mean(losses))
        return losses

    @tf.function
    def gradients(self, rows, wanted):
        with tf.GradientTape() as tape:
            losses = self.losses(rows, wanted)
        return tape.gradient(losses, self.trainable_variables)

    @tf.function
    def train_step(self, data):
        gradients = self.gradients(*data)
        if self.optimizer.iterations >= 2:  # equal in all replicas
            self.late.update_state(tf.reduce_mean(data[0]))
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        once = tf.ones([], tf.float32)  # Horovod adds numbers of one type together
        return {"loss": self.tracker.result(), "late": self.late.result(), "once": once}

    def test_step(self, data):
        self.losses(*data)
        return {"loss": self.tracker.result()}


with ringside.scope():
    given = tf.keras.Input((6,))
    model = Model(given, tf.keras.layers.Dense(1)(tf.keras.layers.Dense(8, "tanh")(given)))
    model.compile(tf.keras.optimizers.SGD(0.005))
history = ringside.fit(
    model, x, x[:, :1] ** 2, batch_size=8, epochs=2, validation_data=(x, x[:, :1]), verbose=0
)
results = {"weights": [w for w in model.get_weights() if np.ndim(w)], **history.history}
