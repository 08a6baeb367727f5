"""A student learns from a teacher that was trained before: a second fit, by a step of its own."""

import numpy as np
import tensorflow as tf

import ringside

KIND = "equal"

tf.keras.utils.set_random_seed(7)
rng = np.random.default_rng(3)
x, y = rng.normal(size=(37, 6)), rng.integers(0, 3, 37)
layers = tf.keras.layers


class Distiller(tf.keras.Model):
    def __init__(self, teacher, student):
        super().__init__()
        self.teacher, self.student = teacher, student

    def compile(self, alpha, **arguments):
        super().compile(**arguments)
        self.alpha, self.divergence = alpha, tf.keras.losses.KLDivergence()

    def call(self, rows):
        return self.student(rows)

    def train_step(self, data):
        rows, labels = data
        wanted = tf.nn.softmax(self.teacher(rows, training=False) / 3)
        with tf.GradientTape() as tape:
            found = self.student(rows, training=True)
            own = self.compiled_loss(labels, found)
            taught = self.divergence(wanted, tf.nn.softmax(found / 3)) * 9
            loss = self.alpha * own + (1 - self.alpha) * taught
        variables = self.student.trainable_variables
        gradients = tape.gradient(loss, variables)
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        self.compiled_metrics.update_state(labels, found)
        return {**{m.name: m.result() for m in self.metrics}, "taught": taught}


def net(width):
    """Three logits."""
    return tf.keras.Sequential([tf.keras.Input((6,)), layers.Dense(width, "tanh"), layers.Dense(3)])


loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
with ringside.scope():
    teacher = net(12)
    teacher.compile(tf.keras.optimizers.Adam(0.01), loss)
first = ringside.fit(teacher, x, y, batch_size=8, epochs=2, verbose=0)
with ringside.scope():
    model = Distiller(teacher, net(4))
    model.compile(alpha=0.2, optimizer="adam", loss=loss, metrics=["accuracy"])
second = ringside.fit(model, x, y, batch_size=8, epochs=2, validation_split=0.2, verbose=0)
results = {"weights": model.get_weights(), "first": first.history["loss"]}
# `taught` is what the last batch's step returned.
results |= second.history
