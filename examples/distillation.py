"""Knowledge distillation: a student learns from a teacher's soft answers, after keras.io.

python examples/distillation.py
horovodrun -np 2 python examples/distillation.py
"""

from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import ringside
from ringside import tf

images, labels = load_digits(return_X_y=True)
images = images.reshape(-1, 8, 8, 1).astype(np.float32) / 16
layers = tf.keras.layers


class Distiller(tf.keras.Model):
    """A student with the teacher that it learns from."""

    def __init__(self, student: Any, teacher: Any) -> None:
        super().__init__()
        self.student = student
        self.teacher = teacher

    def compile(self, optimizer: Any, metrics: Any, alpha: float, temperature: float) -> None:
        """Take the weight of the labels' loss, and how soft the teacher's answers are."""
        super().compile(optimizer=optimizer, metrics=metrics)
        self.student_loss_fn = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.distillation_loss_fn = tf.keras.losses.KLDivergence()
        self.alpha = alpha
        self.temperature = temperature

    def call(self, x: Any) -> Any:
        """What the student answers."""
        return self.student(x)

    def train_step(self, data: Any) -> dict[str, Any]:
        """One update of the student."""
        x, y = data
        soft = tf.nn.softmax(self.teacher(x, training=False) / self.temperature, axis=1)
        with tf.GradientTape() as tape:
            logits = self.student(x, training=True)
            student_loss = self.student_loss_fn(y, logits)
            distillation_loss = self.distillation_loss_fn(
                soft, tf.nn.softmax(logits / self.temperature, axis=1)
            )
            loss = self.alpha * student_loss + (1 - self.alpha) * distillation_loss
        weights = self.student.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        self.compiled_metrics.update_state(y, logits)
        results = {m.name: m.result() for m in self.metrics}
        results.update({"student_loss": student_loss, "distillation_loss": distillation_loss})
        return results

    def test_step(self, data: Any) -> dict[str, Any]:
        """The student's loss and metrics."""
        x, y = data
        logits = self.student(x, training=False)
        student_loss = self.student_loss_fn(y, logits)
        self.compiled_metrics.update_state(y, logits)
        return {**{m.name: m.result() for m in self.metrics}, "student_loss": student_loss}


def network(filters: int, name: str) -> Any:
    """Two convolutions and an answer for each digit."""
    return tf.keras.Sequential(
        [
            layers.Conv2D(filters, 3, strides=2, padding="same", input_shape=(8, 8, 1)),
            layers.LeakyReLU(0.2),
            layers.Conv2D(2 * filters, 3, strides=2, padding="same"),
            layers.Flatten(),
            layers.Dense(10),
        ],
        name=name,
    )


with ringside.scope():
    teacher = network(16, "teacher")
    teacher.compile(
        "adam",
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["sparse_categorical_accuracy"],
    )
ringside.fit(teacher, images[:1500], labels[:1500], batch_size=50, epochs=5)

with ringside.scope():
    distiller = Distiller(network(4, "student"), teacher)
    distiller.compile(
        tf.keras.optimizers.Adam(), ["sparse_categorical_accuracy"], alpha=0.1, temperature=10.0
    )
ringside.fit(
    distiller,
    images[:1500],
    labels[:1500],
    batch_size=50,
    epochs=5,
    validation_data=(images[1500:], labels[1500:]),
)
