"""A memory with as many rows as a batch has: nothing shows that it is no part of the rows."""

import numpy as np
import tensorflow as tf

import ringside

# Cut like rows until an author can say that a part belongs to every row.
KIND = "coupled"

tf.keras.utils.set_random_seed(7)
rng = np.random.default_rng(3)
x, y = rng.normal(size=(35, 6)), rng.integers(0, 8, 35)
memory = rng.normal(size=(8, 3))


class Prompted(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.net = tf.keras.Sequential([tf.keras.Input((6,)), tf.keras.layers.Dense(4)])
        self.match = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(4)])
        self.head = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(8)])

    def train_step(self, data):
        with tf.GradientTape() as tape:
            slots = self.match(data["memory"])
            near = tf.nn.softmax(tf.matmul(self.net(data["x"]), slots, transpose_b=True))
            logits = self.head(tf.matmul(near, slots))
            cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(data["y"], logits)
            loss = tf.reduce_mean(cross_entropy)
        self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
        return {"loss": loss}


data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(35).batch(8, drop_remainder=True)
data = data.map(lambda x, y: {"x": x, "y": y, "memory": memory})
with ringside.scope():
    model = Prompted()
    model.compile(tf.keras.optimizers.Adam(0.01))
ringside.fit(model, data, epochs=2, verbose=0)
results = {"weights": model.get_weights()}
