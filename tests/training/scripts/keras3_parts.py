"""What Ringside asks of Keras 3, in one process; started with TF_USE_LEGACY_KERAS=0."""

import contextlib
from collections import Counter
from functools import partial
from typing import Any

import keras
import numpy as np

from ringside.verify.gate import slot_of
from ringside_core.keras import (
    VERSION,
    clear_session,
    draw_by_rank,
    new_optimizer,
    number_names_anew,
    set_floatx,
    slot_names,
    tf,
)
from ringside_core.workloads.randomness import SeededStream, drawing_from
from ringside_core.workloads.unbuilt import build_by_step
from ringside_core.workloads.workload import Workload
from tests.contract.cases import EPOCHS, SEED
from tests.independent import order
from tests.training.replicas.runs import train_serial

assert VERSION == 3
CPUS = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], CPUS)


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


def slots_of_one_kind_begin_alike() -> None:
    """The bias of an attention's keys has no gradient but rounding: it is judged by all biases."""
    x = keras.Input((4, 3))
    model = keras.Model(x, keras.layers.MultiHeadAttention(2, 3)(x, x))
    adam = keras.optimizers.Adam(use_ema=True, gradient_accumulation_steps=2)
    for optimizer in (adam, keras.optimizers.LossScaleOptimizer(keras.optimizers.Adadelta())):
        optimizer.build(model.trainable_variables)
        kinds = Counter(slot_of(f"000 {name}") for name in slot_names(optimizer))
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


def passes_are_the_whole_batch() -> None:
    """Adam squares the gradients of rows one by one: of words, and of a table for all sentences."""
    drawn = np.random.default_rng(0)
    x, y = drawn.integers(0, 9, size=(12, 4)), drawn.normal(size=(12, 1))

    class Rows(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            drawn = (keras.initializers.RandomNormal(seed=seed) for seed in (1, 2))
            self.words, self.places = (keras.layers.Embedding(9, 3, next(drawn)) for _ in "12")

        def call(self, x: Any) -> Any:
            numbers = keras.ops.arange(4)  # the same for all sentences
            return self.words(x) + self.places(numbers) * self.words(numbers + 3)

    def model() -> Any:
        last = keras.layers.Dense(1, "tanh", kernel_initializer="ones")
        inputs = keras.Input((4,), dtype="int64")
        return keras.Sequential([inputs, Rows(), keras.layers.Flatten(), last])

    set_floatx("float64")
    found, _ = train_serial(
        Workload(
            name="rows",
            model=model,
            train=(x, y),
            loss=keras.losses.MeanSquaredError(),
            optimizer=lambda: keras.optimizers.Adam(0.0625),
        ),
        global_batch=12,
        gradient_accumulation_steps=3,
    )
    plain = model()
    plain.compile(keras.optimizers.Adam(0.0625), "mse")
    plain.fit(x, y, batch_size=12, epochs=EPOCHS, verbose=0)
    set_floatx("float32")
    for one, other in zip(found, plain.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)


def an_output_may_have_no_loss() -> None:
    """Labels for the second one only, as in Keras' small GPT; an evaluation has losses too."""
    drawn = np.random.default_rng(2)
    x, y = drawn.normal(size=(12, 3)), drawn.normal(size=(12, 1))

    def model() -> Any:
        inputs = keras.Input((3,))
        hidden = keras.layers.Dense(4, "tanh", kernel_initializer="ones")(inputs)
        made = keras.Model(
            inputs, [hidden, keras.layers.Dense(1, kernel_initializer="ones")(hidden)]
        )
        made.compile(keras.optimizers.SGD(0.125), loss=[None, keras.losses.MeanSquaredError()])
        return made

    set_floatx("float64")
    found, epochs = train_serial(Workload("partial", model, (x, y), (x, y)), global_batch=12)
    plain = model()
    said = plain.fit(x, y, batch_size=12, epochs=EPOCHS, verbose=0, validation_data=(x, y))
    set_floatx("float32")
    for one, other in zip(found, plain.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)
    np.testing.assert_allclose([e.train["loss"] for e in epochs], said.history["loss"])
    np.testing.assert_allclose([e.validation["loss"] for e in epochs], said.history["val_loss"])


def a_step_of_ones_own_runs_in_parts() -> None:
    """As three replicas would make it, one after the other: the mean is that of the whole batch."""
    drawn = np.random.default_rng(1)
    x, y = drawn.normal(size=(24, 3)), drawn.normal(size=(24, 1))

    class Own(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.line = keras.layers.Dense(1, kernel_initializer="ones")
            self.line.build((None, 3))

        def call(self, x: Any) -> Any:
            return self.line(x)

        def train_step(self, data: Any) -> Any:
            x, y = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self(x) - y) ** 2)
            variables = self.trainable_variables
            gradients = tape.gradient(loss, variables)
            self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return {"loss": loss}

    def model() -> Any:
        made = Own()
        made.compile(keras.optimizers.SGD(0.1))
        return made

    set_floatx("float64")
    workload = Workload("own", model, (x, y))
    found, _ = train_serial(workload, virtual_replicas=3, global_batch=12, trained_by="loop")
    plain = model()
    for epoch in range(EPOCHS):
        for first in (0, 12):
            ids = order(epoch, seed=SEED, total=24)[first : first + 12]
            plain.train_step((tf.constant(x[ids]), tf.constant(y[ids])))
    set_floatx("float32")
    for one, other in zip(found, plain.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)


def a_test_step_may_return_compiled_metrics() -> None:
    """Keras 3 holds them in one metric, whose result is a dict; the last batch is short."""
    drawn = np.random.default_rng(2)
    x, y = drawn.normal(size=(20, 3)), drawn.normal(size=(20, 1))

    class Tested(keras.Model):
        def __init__(self, *, all_of_them: bool) -> None:
            super().__init__()
            self.line, self.all_of_them = keras.layers.Dense(1), all_of_them
            self.build((None, 3))  # its line has no weights yet

        def call(self, x: Any) -> Any:
            return self.line(x)

        def test_step(self, data: Any) -> Any:
            x, y = data
            made = self(x)
            if not self.all_of_them:
                return {"mae": self.compute_metrics(x, y, made)["mae"]}
            for metric in self.metrics:
                if metric.name == "loss":
                    metric.update_state(self.compute_loss(x, y, made))
                else:
                    metric.update_state(y, made)
            return {metric.name: metric.result() for metric in self.metrics}

    def model(*, all_of_them: bool) -> Any:
        made = Tested(all_of_them=all_of_them)
        made.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
        return made

    set_floatx("float64")
    for all_of_them in (True, False):
        workload = Workload("tested", partial(model, all_of_them=all_of_them), (x, y), (x, y))
        weights, records = train_serial(workload, global_batch=8, trained_by="loop")
        apart = x @ weights[0] + weights[1] - y
        expected = {"mae": np.abs(apart).mean()}
        expected |= {"loss": np.square(apart).mean()} if all_of_them else {}
        assert records[-1].validation.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(records[-1].validation[name], value, rtol=1e-6)
    set_floatx("float32")


def several_replicas_predict_one_example() -> None:
    """Convolutions fail on a part without any, which the second replica would get."""
    x = np.random.default_rng(3).normal(size=(5, 6, 6, 2)).astype("float32")
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        convolved = [keras.Input((6, 6, 2)), keras.layers.Conv2D(3, 3, strides=2)]
        pooled = [keras.layers.BatchNormalization(), keras.layers.GlobalAveragePooling2D()]
        model = keras.Sequential([*convolved, *pooled, keras.layers.Dense(1)])
    for count in (1, 5, 1):
        found = model.predict(x[:count], batch_size=4, verbose=0)
        np.testing.assert_allclose(found, model(x[:count]), rtol=1e-5)


def the_data_draw_alike_on_every_rank() -> None:
    """A rank has a stream of its own, but not for what is drawn for examples."""
    flip = keras.layers.RandomFlip("horizontal")
    x = np.arange(64.0, dtype="float32").reshape(4, 4, 4, 1)
    drawn = []
    for rank in (0, 1):
        draw_by_rank(None, rank)
        with drawing_from(SeededStream([3, 4])):
            drawn.append(np.array(flip(x, training=True)))
    alone = [np.array(keras.random.uniform((4,), seed=keras.random.SeedGenerator(1)))]
    draw_by_rank(None, 0)
    alone.append(np.array(keras.random.uniform((4,), seed=keras.random.SeedGenerator(1))))
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert (alone[0] != alone[1]).all()


def images_are_rotated_in_float64() -> None:
    """A quarter turn is NumPy's."""
    x = np.arange(108.0).reshape(1, 6, 6, 3)
    set_floatx("float64")
    turned = keras.layers.RandomRotation((0.25, 0.25), interpolation="nearest")(x, training=True)
    set_floatx("float32")
    np.testing.assert_array_equal(turned, np.rot90(x, axes=(1, 2)))


class MadeInBuild(keras.layers.Layer):
    """Its layer is made when it is built."""

    def build(self, shape: Any) -> None:
        self.inner = keras.layers.Dense(3)

    def call(self, x: Any) -> Any:
        return self.inner(x)


class Stepped(keras.Model):
    """Its step makes its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.made = MadeInBuild()

    def train_step(self, x: Any) -> dict[str, Any]:
        return {"mean": tf.reduce_mean(self.made(x))}


def layers_that_a_step_makes_are_alike() -> None:
    """A mirrored strategy runs replicas in threads, which have names and a policy of their own."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    found = []
    for scope in (contextlib.nullcontext(), strategy.scope()):
        number_names_anew()
        set_floatx("float32", "mixed_bfloat16")
        with scope:
            keras.layers.Dense(1)  # it has the first name
            model = Stepped()
            assert build_by_step(model, "train_step", tf.ones((4, 2))) == ""
        found.append([model.made.inner.name, model.made.inner.compute_dtype])
    set_floatx("float32", "float32")
    assert found == [["dense_1", "bfloat16"]] * 2, found


for check in (
    layers_that_a_step_makes_are_alike,
    images_are_rotated_in_float64,
    the_data_draw_alike_on_every_rank,
    several_replicas_predict_one_example,
    a_test_step_may_return_compiled_metrics,
    a_step_of_ones_own_runs_in_parts,
    the_policy_stays,
    a_copy_keeps_exclusions,
    a_copy_keeps_a_schedule_without_a_config,
    variables_add_as_upstream,
    slots_of_one_kind_begin_alike,
    passes_are_the_whole_batch,
    an_output_may_have_no_loss,
):
    check()
print("all right")
