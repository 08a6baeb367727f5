"""What Ringside asks of Keras 3, in one process; started with TF_USE_LEGACY_KERAS=0."""

from collections import Counter
from typing import Any

import keras
import numpy as np

from backends import make_backend
from ringside.verify.gate import slot_of
from ringside_core.keras import (
    KERAS,
    VERSION,
    keras3_hooks,  # noqa: F401  # it changes Keras
    tf,
)
from ringside_core.specs import RefusalError, RunSpec, Surroundings, Topology
from ringside_core.specs.backends import backend_options
from trainers.fit_call import fit_call

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
    """Keras 3 accumulates in a condition, where a strategy cannot add."""
    backend = make_backend(
        RunSpec(
            backend="mirrored",
            options=backend_options("mirrored", {}),
            topology=Topology(processes_per_host=1, replicas_per_process=2),
            global_batch=2,
            epochs=1,
            keras=3,
        ),
        Surroundings(),
    )
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    for asked in ({"gradient_accumulation_steps": 2}, {"ema_overwrite_frequency": 2}):
        model.compile(keras.optimizers.SGD(use_ema=True, **asked), "mse")
        backend.prepare_model(model, at_tape=True)
        try:
            backend.prepare_model(model)
        except RefusalError as error:
            assert 'ringside.fit(…, gradients="tape")' in str(error)
        else:
            raise AssertionError(asked)


def steps_of_an_epoch_are_those_that_keras_makes() -> None:
    """The last execution is whole where there are data for it."""
    x, y = np.zeros((23, 3)), np.zeros((23, 1))
    data = tf.data.Dataset.from_tensor_slices((x, y))
    asked: list[tuple[tuple[Any, ...], int]] = [((data.repeat().batch(5),), 3)]
    asked += [(given, steps) for given in ((x, y), (data.batch(5),)) for steps in (3, 5)]
    for given, steps in asked:
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", steps_per_execution=2)
        arguments: dict[str, Any] = {
            "steps_per_epoch": steps,
            **({"batch_size": 5} if len(given) > 1 else {}),
        }
        call = fit_call(model, *given, **arguments)
        model.fit(*given, verbose=0, **arguments)
        assert call.steps_per_epoch == int(model.optimizer.iterations), (given, steps)


for check in (
    the_policy_is_that_of_the_run,
    variables_add_as_upstream,
    slots_of_one_kind_have_one_name,
    gradients_of_a_branch_are_added_at_the_tape,
    steps_of_an_epoch_are_those_that_keras_makes,
):
    check()
print("all right")
