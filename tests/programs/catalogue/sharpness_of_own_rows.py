"""SAM climbs by its first gradient: by own rows' gradients each replica stands elsewhere."""

import numpy as np
import tensorflow as tf

import ringside

KIND, GRADIENTS = "equal", "tape"

tf.keras.utils.set_random_seed(7)
rng = np.random.default_rng(3)
x, y = rng.normal(size=(35, 6)), rng.integers(0, 3, 35)


class SAM(tf.keras.Sequential):
    def train_step(self, data):
        rows, labels = data
        variables = self.trainable_variables
        with tf.GradientTape() as tape:
            loss = self.compiled_loss(labels, self(rows, training=True))
        gradients = tape.gradient(loss, variables)
        climbed = [0.05 * g / (tf.linalg.global_norm(gradients) + 1e-12) for g in gradients]
        for variable, change in zip(variables, climbed, strict=True):
            variable.assign_add(change)
        with tf.GradientTape() as tape:
            found = self(rows, training=True)
            loss = self.compiled_loss(labels, found)
        gradients = tape.gradient(loss, variables)
        for variable, change in zip(variables, climbed, strict=True):
            variable.assign_sub(change)
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        self.compiled_metrics.update_state(labels, found)
        return {m.name: m.result() for m in self.metrics}


with ringside.scope():
    model = SAM([tf.keras.Input((6,)), tf.keras.layers.Dense(8, "tanh"), tf.keras.layers.Dense(3)])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.SGD(0.1, momentum=0.9), loss, ["accuracy"])
history = ringside.fit(model, x, y, batch_size=8, epochs=2, verbose=0, gradients="tape")
results = {"weights": model.get_weights(), **history.history}
