"""A table of 10 rows and a temperature beside the rows: they belong to every row, uncut."""

import numpy as np
import tensorflow as tf

import ringside

KIND = "equal"

tf.keras.utils.set_random_seed(7)
rng = np.random.default_rng(3)
x, y = rng.normal(size=(37, 6)), rng.integers(0, 10, 37)
table = rng.normal(size=(10, 3))


class Prompted(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.net = tf.keras.Sequential([tf.keras.Input((6,)), tf.keras.layers.Dense(4)])
        self.match = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(4)])

    def train_step(self, data):
        with tf.GradientTape() as tape:
            near = tf.matmul(self.net(data["x"]), self.match(data["table"]), transpose_b=True)
            logits = near / data["temperature"]
            cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(data["y"], logits)
            loss = tf.reduce_mean(cross_entropy)
        self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
        return {"loss": loss}


def beside(x, y):
    """A batch with what belongs to all of it."""
    return {"x": x, "y": y, "table": table, "temperature": tf.constant([0.5], x.dtype)}


data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(37).batch(8).map(beside)
with ringside.scope():
    model = Prompted()
    model.compile(tf.keras.optimizers.Adam(0.01))
ringside.fit(model, data, epochs=2, verbose=0)
results = {"weights": model.get_weights()}
