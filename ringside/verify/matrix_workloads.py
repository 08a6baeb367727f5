"""The small programs of `ringside doctor --matrix`; each runs on either Keras."""

from typing import Any

import numpy as np

from ringside_core.keras import policy_scope, tf
from ringside_core.workloads.workload import Workload

EXAMPLES = 22  # in batches of 8: the last one fills the second of two replicas in part


def plain() -> Workload:
    """A net without anything special."""
    return _workload("plain", tf.keras.Sequential)


def own_step() -> Workload:
    """The net with a training step of its author's."""
    return _workload("own_step", _OwnStep)


def clipped() -> Workload:
    """The gradient is clipped by its global norm, in every update."""
    return _workload("clipped", tf.keras.Sequential, global_clipnorm=0.01)


def half() -> Workload:
    """In mixed_float16; a gradient of the second replica overflows in each epoch."""
    return _workload("half", tf.keras.Sequential, policy="mixed_float16", overflow=True)


def stopped() -> Workload:
    """A callback ends the training after its second epoch: the loss does not rise."""
    stop = tf.keras.callbacks.EarlyStopping(monitor="loss", mode="max", patience=0)
    return _workload("stopped", tf.keras.Sequential, callbacks=[stop])


def _workload(
    name: str,
    kind: Any,
    *,
    policy: str = "",
    overflow: bool = False,
    callbacks: Any = (),
    **of_optimizer: Any,
) -> Workload:
    floatx = tf.keras.backend.floatx()
    x = 0.15 * np.random.default_rng(0).normal(size=(EXAMPLES, 3))
    y = np.sin(x.sum(axis=1, keepdims=True))
    if overflow:
        y[13] = 3000.0  # of the second batch, in the second replica's part

    def model() -> Any:
        layers = tf.keras.layers
        with policy_scope(policy or floatx):
            net = kind(
                [
                    tf.keras.Input((3,)),
                    layers.Dense(8, "tanh", kernel_initializer=_drawn),
                    layers.Dense(1, kernel_initializer=_drawn),
                    layers.Activation("linear", dtype=floatx),
                ],
                name=name,
            )
        return net

    return Workload(
        name=name,
        model=model,
        train=(x.astype(floatx), y.astype(floatx)),
        validation=(x[:9].astype(floatx), y[:9].astype(floatx)),
        loss="mse",
        optimizer=lambda: tf.keras.optimizers.Adam(0.01, **of_optimizer),
        callbacks=callbacks,
    )


def _drawn(shape: Any, dtype: Any = None) -> Any:
    """The same first weights under either Keras, whose own initializers draw differently."""
    return tf.cast(0.5 * np.random.default_rng(3).normal(size=tuple(shape)), dtype or "float32")


class _OwnStep(tf.keras.Sequential):
    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}
