"""What Ringside asks of Keras 3, in one process; started with TF_USE_LEGACY_KERAS=0."""

from collections import Counter
from typing import Any

import keras
import numpy as np

import ringside
from backends import make_backend
from ringside.certificates.gate import slot_of
from ringside_core.keras import (
    KERAS,
    VERSION,
    keras3_hooks,  # noqa: F401  # it changes Keras
    tf,
)
from ringside_core.specs import RefusalError, Surroundings
from tests.unit.stats.factory import spec_of

assert VERSION == 3


def the_policy_is_that_of_the_run() -> None:
    """In float64 every layer computes in it, whatever its author's policy says."""
    KERAS.set_floatx("float32", "mixed_bfloat16")
    assert keras.layers.Dense(1).compute_dtype == "bfloat16"
    KERAS.set_floatx("float64", "mixed_bfloat16")
    assert keras.layers.Dense(1).compute_dtype == "float64"
    keras.config.set_dtype_policy("float32")
    KERAS.set_floatx("float32", None)
    assert keras.layers.Dense(1).compute_dtype == "float32"


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


def slots_of_one_kind_have_one_name() -> None:
    """The bias of an attention's keys has no gradient but rounding: it is judged by all biases."""
    x = keras.Input((4, 3))
    model = keras.Model(x, keras.layers.MultiHeadAttention(2, 3)(x, x))
    adam = keras.optimizers.Adam(use_ema=True, gradient_accumulation_steps=2)
    for optimizer in (adam, keras.optimizers.LossScaleOptimizer(keras.optimizers.Adadelta())):
        optimizer.build(model.trainable_variables)
        kinds = Counter(slot_of(f"000 {name}") for name in KERAS.slot_names(optimizer))
        of_all = {kind for kind, number in kinds.items() if number == len(model.weights)}
        assert set(kinds) - of_all <= {
            "iteration",
            "learning_rate",
            "step_counter",
            "dynamic_scale",
        }
        assert of_all in (
            {"average", "gradient_accumulator", "momentum", "velocity"},
            {"accumulated_grad", "accumulated_delta_var"},
        )


def gradients_of_a_branch_are_added_at_the_tape() -> None:
    """Keras 3 accumulates in a condition, where a strategy cannot add; it may not update there."""

    def backend_of(name: str, replicas: int) -> Any:
        return make_backend(spec_of(name, replicas, keras=3), Surroundings())

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    for asked in ({"gradient_accumulation_steps": 2}, {"ema_overwrite_frequency": 2}):
        model.compile(keras.optimizers.SGD(use_ema=True, **asked), "mse")
        backend_of("mirrored", 2).prepare_model(model, at_tape=True)
        backend_of("serial", 1).prepare_model(model)
        refused = [
            ("mirrored", 2, False, 'gradients="tape"'),
            ("mirrored", 1, True, "Leave it out"),
            ("central_storage", 2, True, "Leave it out"),
        ]
        for name, replicas, at_tape, words in refused:
            try:
                backend_of(name, replicas).prepare_model(model, at_tape=at_tape)
            except RefusalError as error:
                assert words in str(error)
            else:
                raise AssertionError((name, asked))


def executions_are_whole() -> None:
    """Of data that go on, an epoch of 3 steps would have 4."""
    x = np.random.default_rng(0).normal(size=(23, 3))
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(5)
    unknown = data.apply(tf.data.experimental.assert_cardinality(tf.data.UNKNOWN_CARDINALITY))
    with ringside.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", steps_per_execution=2)
    made = [ringside.fit(model, data, verbose=0), ringside.fit(model, x, x[:, :1], verbose=0)]
    made.append(ringside.fit(model, data.repeat(), steps_per_epoch=4, verbose=0))
    assert int(model.optimizer.iterations) == 5 + 1 + 4, made
    for given, steps in ((data.repeat(), 3), (unknown, None)):
        try:
            ringside.fit(model, given, steps_per_epoch=steps, verbose=0)
        except RefusalError as error:
            assert "must be of whole executions" in str(error)
        else:
            raise AssertionError((given, steps))


for check in (
    the_policy_is_that_of_the_run,
    variables_add_as_upstream,
    slots_of_one_kind_have_one_name,
    gradients_of_a_branch_are_added_at_the_tape,
    executions_are_whole,
):
    check()
print("all right")
