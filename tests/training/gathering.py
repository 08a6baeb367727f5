"""Models whose losses couple the examples of a batch, with `ringside.gather` and without."""

from typing import Any

import numpy as np

import ringside
from ringside_core.keras import tf
from ringside_core.workloads.workload import Workload

layers = tf.keras.layers
FEATURES = 5


def _numbers(count: int, seed: int) -> Any:
    return np.random.default_rng(seed).normal(size=(count, FEATURES))


def scored(one: Any, other: Any) -> Any:
    """The mean loss of telling each row's partner from those of the others."""
    scores = tf.matmul(one, other, transpose_b=True)
    own = tf.range(tf.shape(one)[0])
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(own, scores))


class Pairs(tf.keras.Model):
    """Two views of each example, by a net of its own each."""

    def __init__(self, *, gathers: bool, normalises: bool) -> None:
        super().__init__()
        norm = [layers.BatchNormalization()] if normalises else []
        self.one = tf.keras.Sequential([layers.Dense(4, "tanh", input_shape=(FEATURES,)), *norm])
        self.other = tf.keras.Sequential([layers.Dense(4, "tanh", input_shape=(FEATURES,))])
        self.gather = ringside.gather if gathers else tf.identity

    def loss_of(self, x: Any, *, training: bool) -> Any:
        """Of a batch; also of what only this replica has."""
        views = tf.concat([self.one(x, training=training), self.other(x)], axis=1)
        together = self.gather(views)  # both in one
        return scored(together[:, :4], together[:, 4:]) + tf.reduce_mean(views**2)

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = self.loss_of(data, training=True)
        mine = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, mine), mine, strict=True))
        return {"loss": loss}

    def test_step(self, data: Any) -> Any:
        return {"loss": self.loss_of(data, training=False)}


def pairs(gathers: bool = True, normalises: bool = False) -> Workload:
    """A training step of its own."""

    def model() -> Any:
        made = Pairs(gathers=gathers, normalises=normalises)
        made.compile(tf.keras.optimizers.SGD(0.5, momentum=0.5))
        return made

    return Workload(name="pairs", model=model, train=_numbers(31, 1), validation=_numbers(7, 2))


def _gathered_loss(y: Any, made: Any) -> Any:
    return scored(ringside.gather(made), ringside.gather(y))


def function() -> Workload:
    """A loss that is a function, of what a plain model makes."""
    x = _numbers(27, 3)
    return Workload(
        name="function",
        model=lambda: tf.keras.Sequential([layers.Dense(4, "tanh", input_shape=(FEATURES,))]),
        train=(x, x[:, :4] ** 2),
        validation=(x[:7], x[:7, :4] ** 2),
        loss=_gathered_loss,
        optimizer=lambda: tf.keras.optimizers.Adam(0.05),
    )
