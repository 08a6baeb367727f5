"""A function with @ringside.step: what it uses, and the model that runs it."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from backends import make_backend
from ringside_core.keras import optimizers_of, tf
from ringside_core.specs import RefusalError, Surroundings
from ringside_core.workloads.step import step
from tests.training.momentum import spec_of
from trainers.fit import make_variables
from trainers.fit_call import fit_call
from trainers.step import Steps


def rows(count: int) -> np.ndarray:
    """x [count, 2]: different rows."""
    return np.arange(2.0 * count, dtype=np.float32).reshape(count, 2)


class Agent:
    """An object of a user's, with a model."""

    def __init__(self) -> None:
        self.parts = [tf.keras.layers.Dense(1)]
        self.optimizer = tf.keras.optimizers.SGD()

    def train(self, batch: Any) -> Any:
        """A step of a method; it takes its batch apart."""
        x, y = batch
        return tf.reduce_mean(self.parts[0](x) - y)


HELD = {"net": tf.keras.layers.Dense(1), "optimizer": tf.keras.optimizers.Adam()}


def helped(x: Any) -> Any:
    """What a step calls."""
    return HELD["net"](x)


def test_what_a_step_uses_is_found_where_people_keep_it() -> None:
    """In a dict of the script, used by a function that it calls; in arguments; in an object."""

    def by_names(x: Any) -> Any:
        return HELD["optimizer"], helped(x)

    agent = Agent()
    for function, layer, optimizer in (
        (by_names, HELD["net"], HELD["optimizer"]),
        (partial(lambda a, x: a.train(x), agent), agent.parts[0], agent.optimizer),
        (agent.train, agent.parts[0], agent.optimizer),
    ):
        made = step(function).model()
        assert optimizers_of(made) == [optimizer]
        assert layer in list(made.submodules)


def unbuilt_step() -> tuple[Any, Any, Any]:
    """A step function, the layer that normalises in its second model, and one it never calls."""
    layers = tf.keras.layers
    first, norm = tf.keras.Sequential([layers.Dense(5)]), layers.BatchNormalization()
    second, other = tf.keras.Sequential([norm, layers.Dense(1)]), tf.keras.Sequential()
    optimizer, seen = tf.keras.optimizers.Adam(), tf.keras.metrics.Mean(name="seen")

    @step
    @tf.function
    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            hidden = first(x, training=True)
            if tf.reduce_mean(hidden) > 1e6:
                hidden = hidden * 0.5
            loss = tf.reduce_mean((second(hidden, training=True) - y) ** 2)
        mine = first.trainable_variables + second.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, mine), mine, strict=True))
        seen.update_state(loss)
        return loss if len(x) else other(x)

    return train_step, norm, other


def test_models_that_a_step_calls_are_built_from_the_data_and_nothing_is_run() -> None:
    """The second one gets what the first one makes; what layers, metrics and optimizers keep."""
    train_step, norm, _ = unbuilt_step()
    x = rows(6)

    call = fit_call(train_step, x, x[:, :1])
    model = call.model
    with make_backend(spec_of(), Surroundings()) as backend:
        Steps(backend).take(model)
        make_variables(call)

    shapes = [tuple(weight.shape) for weight in model.trainable_variables]
    assert sorted(shapes) == sorted([(2, 5), (5,), (5,), (5,), (5, 1), (1,)])
    np.testing.assert_array_equal(norm.moving_mean, np.zeros(5))
    assert float(model.metrics[0].count) == 0
    (optimizer,) = optimizers_of(model)
    assert int(optimizer.iterations) == 0
    weight = model.trainable_variables[0]
    before = np.array(weight)
    optimizer.apply_gradients([(tf.ones_like(weight), weight)])  # it applies again
    assert (np.array(weight) != before).all()


def test_a_step_that_takes_more_than_a_batch_is_refused() -> None:
    """As Horovod's examples do, which broadcast after the first one."""
    held = tf.keras.optimizers.SGD()

    def train_step(x: Any, y: Any, first_batch: Any) -> Any:
        return held, x, y, first_batch

    with pytest.raises(RefusalError, match=r"first_batch.*data of 2 parts"):
        make_variables(fit_call(step(train_step), rows(6), rows(6)[:, :1]))


def test_a_step_may_take_its_batch_apart_itself() -> None:
    """One argument for a batch of two, and a loss without a name."""
    x = np.ones((2, 3), np.float32)
    results = step(Agent().train).model().train_step((x, x[:, :1]))

    assert list(results) == ["loss"]


def test_a_step_without_an_optimizer_or_a_loss_is_refused() -> None:
    """Each by one message."""

    def silent(x: Any) -> None:
        del x
        HELD["optimizer"]

    with pytest.raises(RefusalError, match="must use an optimizer"):
        step(lambda x: x).model()
    with pytest.raises(RefusalError, match="must return its loss"):
        step(silent).model().train_step(np.ones(2))


@pytest.mark.parametrize(
    "asked",
    [
        lambda x: tf.zeros([x.shape[0], 2]),
        lambda x: x / x.shape[0],
        lambda x: tf.add_n([x for _ in range(x.shape[0])]),
        lambda x: tf.ones(x.shape) * x,
    ],
)
def test_a_step_that_asks_for_rows_by_shape_is_refused_in_one_sentence(asked: Any) -> None:
    """Of batches whose last one may be short."""
    data = tf.data.Dataset.from_tensor_slices(rows(5)).batch(2)
    made = step(lambda x: tf.reduce_mean(HELD["net"](asked(x))))
    with pytest.raises(RefusalError, match=r"How many rows .* tf\.shape\(x\)\[0\]"):
        make_variables(fit_call(made, data))
