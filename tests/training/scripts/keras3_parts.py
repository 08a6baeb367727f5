"""What Ringside asks of Keras 3, without a training; started with TF_USE_LEGACY_KERAS=0."""

from typing import Any

import keras
import numpy as np

from ringside_core.keras import VERSION, clear_session, new_optimizer, set_floatx, tf

assert VERSION == 3


def the_policy_stays() -> None:
    """`clear_session` of Keras forgets it."""
    set_floatx("float32", "mixed_bfloat16")
    clear_session()
    assert keras.layers.Dense(1).compute_dtype == "bfloat16"
    set_floatx("float64", "mixed_bfloat16")
    assert keras.layers.Dense(1).compute_dtype == "float64"
    keras.config.set_dtype_policy("float32")
    set_floatx("float32")
    assert keras.layers.Dense(1).compute_dtype == "float32"


def a_copy_keeps_exclusions() -> None:
    """Also within a loss scale."""
    bias = keras.Variable(np.ones(2), name="bias")
    inner = keras.optimizers.AdamW()
    inner.exclude_from_weight_decay(var_names=["bias"])
    for one in (inner, keras.optimizers.LossScaleOptimizer(inner)):
        copy = new_optimizer(one)
        copy = getattr(copy, "inner_optimizer", copy)
        copy.build([bias])
        assert not copy._use_weight_decay(bias)


def a_copy_keeps_a_schedule_without_a_config() -> None:
    """Copies may share it."""

    class Mine(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step: Any) -> Any:
            return 0.5

    schedule = Mine()
    assert new_optimizer(keras.optimizers.SGD(schedule))._learning_rate is schedule


def variables_add_as_upstream() -> None:
    """With broadcasting, and in a layer that computes in 16 bits."""
    total = keras.Variable(np.zeros(3))
    total.assign_add(1.0)
    total.assign_sub(np.arange(3.0))
    assert total.numpy().tolist() == [1.0, 0.0, -1.0]

    class Counting(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.number = self.add_weight(shape=(), initializer="zeros", trainable=False)

        def call(self, x: Any) -> Any:
            self.number.assign_add(tf.cast(1.0, x.dtype))
            return x

    layer = Counting(dtype="mixed_bfloat16")
    layer(np.ones((2, 2)))
    assert float(layer.number) == 1.0


for check in (
    the_policy_stays,
    a_copy_keeps_exclusions,
    a_copy_keeps_a_schedule_without_a_config,
    variables_add_as_upstream,
):
    check()
print("all right")
