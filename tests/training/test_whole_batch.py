"""Losses that look at their whole batch: which they are, and what they mean for replicas."""

import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ringside_core.keras import tf
from ringside_core.specs import RefusalError
from ringside_core.workloads.workload import Workload
from tests.contract.cases import SEED
from tests.independent import order
from tests.training.replicas.runs import batches, train_serial
from tests.verify.zoo import GLOBAL_BATCH
from tests.verify.zoo_of_batches import Narrowing, dice, one_number
from trainers.own_trial import try_out
from trainers.whole_batch import losses_count_padding, mark_losses, takes_true_examples

layers = tf.keras.layers
EXAMPLES, FEATURES = 27, 3


def numbers() -> tuple[Any, Any]:
    """x [27, 3] and y [27, 1], float64."""
    x = np.random.default_rng(3).normal(size=(EXAMPLES, FEATURES))
    return x, (x.sum(axis=1, keepdims=True) > 0).astype(float)


def stacked(*more: Any) -> Callable[[], Any]:
    """A function that returns a model with these layers."""
    return lambda: tf.keras.Sequential(
        [tf.keras.Input((FEATURES,)), *more, layers.Dense(1, "sigmoid")]
    )


def by_example(y: Any, made: Any) -> Any:
    """[batch], as Keras' own losses return."""
    return tf.reduce_mean((y - made) ** 2, axis=-1)


def added_by(layer: Any, x: Any) -> None:
    """What a layer may leave to a function."""
    layer.add_loss(tf.reduce_mean(x**2))


class Helped(tf.keras.layers.Layer):
    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            added_by(self, x)
        return x


class LikeKeras(tf.keras.losses.MeanSquaredError):
    """Its own only in part."""


tf.keras.utils.get_custom_objects()["registered_loss"] = one_number


class Summing(tf.keras.layers.Layer):
    def call(self, x: Any) -> Any:
        self.add_loss(tf.reduce_sum(x**2))
        return x


class Measuring(tf.keras.layers.Layer):
    def call(self, x: Any) -> Any:
        self.add_metric(tf.reduce_mean(x**2), name="size")
        return x


class MeasuringEach(tf.keras.layers.Layer):
    """Holds its metric, and tells it every element."""

    def __init__(self) -> None:
        super().__init__()
        self.size = tf.keras.metrics.Mean(name="size")

    def call(self, x: Any) -> Any:
        self.size.update_state(x**2)
        return x


class OwnStep(tf.keras.Model):
    def train_step(self, data: Any) -> Any:
        return {"loss": tf.reduce_mean(data[0])}


class Accumulating(tf.keras.Model):
    """Applies what it has added up in every second step."""

    def __init__(self) -> None:
        super().__init__()
        self.net = layers.Dense(1)
        self.steps = tf.Variable(0, trainable=False)

    def call(self, x: Any) -> Any:
        return self.net(x)

    def train_step(self, data: Any) -> Any:
        loss = tf.reduce_mean(self(data[0]))
        self.steps.assign_add(1)
        mine = self.net.trainable_variables
        tf.cond(
            self.steps % 2 == 0,
            lambda: self.optimizer.apply_gradients([(tf.ones_like(one), one) for one in mine]),
            lambda: tf.constant(0, tf.int64),
        )
        return {"loss": loss}


class Late(tf.keras.Model):
    """Its first step makes the weights of a net, which its call does not run."""

    def __init__(self) -> None:
        super().__init__()
        zeros = tf.keras.initializers.Zeros()
        self.net = tf.keras.Sequential([layers.Dense(1, kernel_initializer=zeros, name="late")])

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.net(x) - y) ** 2)
        mine = self.net.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, mine), mine, strict=True))
        return {"loss": loss}


class InPython(Late):
    """Its step cannot be traced."""

    def train_step(self, data: Any) -> Any:
        assert tf.abs(data[0]).numpy().size
        return super().train_step(data)


class Compiled(Late):
    """Tells what was compiled, which its first step makes."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            made = self.net(x)
            loss = self.compiled_loss(y, made)
        mine = self.net.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, mine), mine, strict=True))
        self.compiled_metrics.update_state(y, made)
        return {one.name: one.result() for one in self.metrics}

    def test_step(self, data: Any) -> Any:
        self.compiled_loss(data[1], self.net(data[0]))
        return {one.name: one.result() for one in self.metrics}


class Counting(Late):
    """Counts in Python how often its step is traced, and keeps a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def train_step(self, data: Any) -> Any:
        self.calls, self.last = self.calls + 1, data[0] + 1
        return super().train_step(data)


class Tracking(tf.keras.Model):
    """Tells the first input as its loss, by a metric of its own or as it is."""

    def __init__(self, *, by_metric: bool) -> None:
        super().__init__()
        self.net = layers.Dense(1)
        self.tracker = tf.keras.metrics.Mean(name="loss") if by_metric else None

    @property
    def metrics(self) -> list[Any]:
        return [self.tracker] if self.tracker else []

    def call(self, x: Any) -> Any:
        return self.net(x)

    def train_step(self, data: Any) -> Any:
        mine = self.net.trainable_variables
        self.optimizer.apply_gradients([(tf.zeros_like(one), one) for one in mine[:1]])
        mine[1].assign_add([1.0])  # an epoch that trains nothing is an error
        loss = tf.reduce_mean(data[0] ** 2)
        if self.tracker is None:
            return {"loss": loss}
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result(), "elbo": self.tracker.result()}


def own_step() -> Any:
    """A model with a train_step of its own."""
    inputs = tf.keras.Input((FEATURES,))
    return OwnStep(inputs, layers.Dense(1)(inputs))


def masked() -> Any:
    """A mask that ends before the output."""
    return tf.keras.Sequential([layers.Masking(input_shape=(FEATURES, 1)), layers.LSTM(1)])


def masked_output() -> Any:
    """A mask on the output."""
    return tf.keras.Sequential(
        [layers.Masking(input_shape=(FEATURES, 1)), layers.LSTM(1, return_sequences=True)]
    )


def called(model: Callable[[], Any]) -> Callable[[], Any]:
    """The same in a model that is built by its first call."""

    class Outer(tf.keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model()

        def call(self, x: Any) -> Any:
            return self.inner(x)

    return Outer


def marked(model: Callable[[], Any], loss: Any, *, one_pass: bool = True) -> Any:
    """The model of a workload with this loss."""
    workload = Workload(name="one", model=model, train=numbers(), loss=loss, optimizer="sgd")
    return mark_losses(workload.build_model(), workload, one_pass=one_pass)


DECAYING = layers.Dense(2, kernel_regularizer="l2")
ACTIVE = layers.Dense(2, activity_regularizer="l2")


@pytest.mark.parametrize(
    ("model", "loss", "looks"),
    [
        (stacked(), "mse", False),
        (stacked(DECAYING), tf.keras.losses.BinaryCrossentropy(), False),
        (stacked(layers.BatchNormalization()), tf.keras.losses.mae, False),
        (masked, "mse", False),
        (own_step, None, False),
        (stacked(), by_example, True),
        (stacked(), one_number, True),
        (stacked(), "registered_loss", True),
        (stacked(), LikeKeras(), True),
        (stacked(Helped()), "mse", True),
        (stacked(), dice, True),
        (stacked(Narrowing()), "mse", True),
        (stacked(Measuring()), "mse", True),
        (stacked(MeasuringEach()), "mse", True),
        (stacked(ACTIVE), "mse", True),
        (called(stacked(Narrowing())), "mse", True),
        (masked_output, "mse", True),
        (called(masked_output), "mse", True),
    ],
)
def test_what_weights_of_zero_may_not_take_out(model: Any, loss: Any, looks: bool) -> None:
    """Losses of the author's own, of activations, and of valid elements; metrics of layers."""
    made = marked(model, loss)

    assert losses_count_padding(made) == looks
    assert takes_true_examples(made) == (looks or model is own_step)


def test_in_several_passes_an_authors_loss_is_weighed() -> None:
    """Only Keras' own step can be run so; a mask then has no way."""
    assert not takes_true_examples(marked(stacked(), by_example, one_pass=False))
    assert not takes_true_examples(marked(stacked(Measuring()), "mse", one_pass=False))
    assert takes_true_examples(marked(masked_output, "mse", one_pass=False))


def test_a_model_may_be_compiled_again() -> None:
    """As a script does with another loss."""
    made = marked(stacked(), dice)
    workload = Workload("two", lambda: made, numbers(), loss="mse", optimizer="sgd")

    assert not losses_count_padding(mark_losses(made, workload, one_pass=True))


def test_a_layer_that_adds_a_sum_is_refused() -> None:
    """It would be of each replica's part."""
    data = numbers()
    workload = Workload("sum", stacked(Summing()), data, data, "mse", "sgd")

    with pytest.raises(RefusalError, match="must be a mean over the batch, not a sum"):
        train_serial(workload)


def mean_of_batches(x: Any, epoch: int) -> float:
    """Mean over the true batches of an epoch of their mean squares, by NumPy."""
    cut = batches(EXAMPLES, GLOBAL_BATCH, epoch)
    return float(np.mean([np.mean(x[ids[:true]] ** 2) for ids, true in cut]))


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_metric_that_a_layer_adds_counts_no_padding(replicas: int) -> None:
    """As in Keras it is a mean over batches; the last one has three examples."""
    x, y = numbers()
    workload = Workload("size", lambda: stacked(Measuring())(), (x, y), None, "mse", "sgd")

    _, epochs = train_serial(workload, virtual_replicas=replicas)

    told = [epoch.train["size"] for epoch in epochs]
    np.testing.assert_allclose(told, [mean_of_batches(x, 0), mean_of_batches(x, 1)], rtol=1e-12)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("layer", [Measuring, MeasuringEach])
def test_a_metric_of_a_layer_counts_each_held_out_example_once(layer: Any, replicas: int) -> None:
    """27 in batches of 12: the mean over them, by NumPy. In training too, if it is told each."""
    x, y = numbers()
    workload = Workload("size", lambda: stacked(layer())(), (x, y), (2 * x, y), "mse", "sgd")

    _, epochs = train_serial(workload, virtual_replicas=replicas)

    for epoch in epochs:
        assert epoch.validation["size"] == pytest.approx(np.mean(4 * x**2), rel=1e-12)
        if layer is MeasuringEach:
            assert epoch.train["size"] == pytest.approx(np.mean(x**2), rel=1e-12)


@pytest.mark.parametrize("by_metric", [True, False])
def test_the_loss_of_an_own_step_is_told_as_its_author_does(by_metric: bool) -> None:
    """What a metric says is over batches; a bare number is told as the mean over the examples."""
    x, y = numbers()

    def model() -> Any:
        made = Tracking(by_metric=by_metric)
        made.compile("sgd")
        return made

    _, epochs = train_serial(Workload("tracking", model, (x, y)))

    told = [epoch.train["loss"] for epoch in epochs]
    expected = [mean_of_batches(x, 0), mean_of_batches(x, 1)] if by_metric else [np.mean(x**2)] * 2
    np.testing.assert_allclose(told, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Accumulating, "must apply an optimizer each time.*Accumulating.train_step"),
        (InPython, "all its weights before its first step.*train_step ends with.*numpy"),
    ],
)
def test_a_step_that_cannot_be_distributed_is_refused(kind: Any, words: str) -> None:
    """Before anything is trained."""

    def model() -> Any:
        made = kind()
        made.compile("sgd")
        return made

    with pytest.raises(RefusalError, match=words):
        train_serial(Workload("own", model, numbers()))


@pytest.mark.parametrize("replicas", [1, 2])
def test_weights_that_the_first_step_would_make_are_there_before_it(replicas: int) -> None:
    """They begin at zero, and are trained as NumPy trains them."""
    x, y = numbers()

    def model() -> Any:
        made = Late()
        made.compile(tf.keras.optimizers.SGD(0.125))
        return made

    (kernel, bias), epochs = train_serial(
        Workload("late", model, (x, y)), virtual_replicas=replicas
    )

    w, b = np.zeros((FEATURES, 1)), 0.0
    for epoch in range(len(epochs)):
        for ids, true in batches(EXAMPLES, GLOBAL_BATCH, epoch):
            given = x[ids[:true]]
            off = given @ w + b - y[ids[:true]]
            w, b = w - 0.25 * given.T @ off / true, b - 0.25 * off.mean()
    np.testing.assert_allclose(kernel, w, rtol=1e-12)
    np.testing.assert_allclose(bias, [b], rtol=1e-12)


def test_what_the_step_keeps_in_python_is_as_before() -> None:
    """Its weights are there, and else it was never run."""
    model = Counting()
    model.compile("sgd")

    made = Workload("counting", lambda: model, numbers()).build_model()

    assert [tuple(weight.shape) for weight in made.weights] == [(FEATURES, 1), (1,)]
    assert made.calls == 0
    assert not hasattr(made, "last")


class Inner(Late):
    """A tf.function trains a second net, which is built; a third one is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.other, self.unused = layers.Dense(1, kernel_initializer="zeros"), layers.Dense(2)
        self.other.build((None, FEATURES))
        self.slow = tf.keras.optimizers.SGD(0.125)

    def train_step(self, data: Any) -> Any:
        self.update(*data)
        return super().train_step(data)

    @tf.function(input_signature=[tf.TensorSpec([None, n], tf.float64) for n in (FEATURES, 1)])
    def update(self, x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.other(x) - y) ** 2)
        mine = self.other.trainable_variables
        self.slow.apply_gradients(zip(tape.gradient(loss, mine), mine, strict=True))
        return loss


def test_a_function_within_the_step_still_trains_after_it_was_traced() -> None:
    """Both nets are the same, and end alike."""
    x, y = numbers()

    def model() -> Any:
        made = Inner()
        made.compile(tf.keras.optimizers.SGD(0.125))
        return made

    weights, _ = train_serial(Workload("inner", model, (x, y)))

    one, other = (weight for weight in weights if weight.shape == (FEATURES, 1))
    assert np.abs(one).max() > 0.01
    np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("replicas", [1, 2])
def test_compiled_losses_of_a_model_without_a_call_count_no_padding(replicas: int) -> None:
    """As means over the examples; the second replica has none of the last batch of three."""
    x, y = numbers()

    def model() -> Any:
        made = Compiled()
        made.compile(tf.keras.optimizers.SGD(1e-9), "mse", metrics=["mae"])
        return made

    _, epochs = train_serial(Workload("compiled", model, (x, y)), virtual_replicas=replicas)

    expected = {"loss": np.mean(y**2), "mae": np.mean(np.abs(y))}  # its weights stay near zero
    for epoch in epochs:
        assert epoch.train == pytest.approx(expected, rel=1e-6)


class Summed(tf.keras.Model):
    """Its tape gets several losses; beside it, a penalty on gradients by its inputs."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.line, self.axis = layers.Dense(2), axis

    def call(self, x: Any) -> Any:
        return self.line(x)

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            with tf.GradientTape() as inner:
                inner.watch(x)
                made = self(x)
            penalty = tf.reduce_mean(inner.gradient(made, x) ** 2)
            losses = tf.reduce_mean((made - y) ** 2, axis=self.axis) + penalty
        variables = self.trainable_variables
        self.optimizer.apply_gradients(
            zip(tape.gradient(losses, variables), variables, strict=True)
        )
        return {"loss": tf.reduce_mean(losses)}


class Divided(tf.keras.Model):
    """Its loss is a sum that it divides itself, or not."""

    def __init__(self, by: str) -> None:
        super().__init__()
        self.line, self.by = layers.Dense(1), by
        self.summed = tf.keras.losses.MeanSquaredError(reduction="sum")

    def call(self, x: Any) -> Any:
        return self.line(x)

    def train_step(self, data: Any) -> Any:
        x, y = data
        size = tf.cast(tf.shape(x)[0], x.dtype)
        with tf.GradientTape() as tape:
            made = self(x)
            losses = tf.keras.losses.mean_squared_error(y, made)
            loss = {
                "nothing": self.summed(y, made),
                "size": self.summed(y, made) / size,
                "each by size": losses / size,
                "a constant": losses / 6.0,
                "outputs": tf.reduce_mean((made - y) ** 2, axis=0),
            }[self.by]
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return {"loss": tf.reduce_mean(losses)}


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("by", ["nothing", "size", "each by size", "a constant", "outputs"])
def test_sums_are_of_the_whole_batch_and_means_are_means(by: str, replicas: int) -> None:
    """As plain Keras trains without replicas; whole batches, for a sum depends on their size."""
    x, y = (one[:24] for one in numbers())

    def model() -> Any:
        made = Divided(by)
        made.build((None, FEATURES))
        made.compile(tf.keras.optimizers.SGD(0.01))
        return made

    found, _ = train_serial(Workload("own", model, (x, y)), virtual_replicas=replicas)
    alone, _ = train_serial(Workload("own", model, (x, y)))

    for one, other in zip(found, alone, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)


def test_a_sum_of_one_example_is_refused() -> None:
    """It cannot be told from a mean with an axis too many."""
    x, y = (tf.cast(one[:1], tf.keras.backend.floatx()) for one in numbers())
    model = Summed(1)
    model(x)
    model.compile("sgd")
    batch = x, y, tf.ones(1, x.dtype)

    with pytest.raises(RefusalError, match="must have two examples"):
        try_out(model, batch, (x, y), (x, y), several=True)


def test_a_step_that_cannot_run_on_a_part_says_so() -> None:
    """With the line that fails; alone it ends with the author's own error."""

    class Sized(Summed):
        def train_step(self, data: Any) -> Any:
            raise ValueError("16 and 8")

    x, y = (tf.cast(one[:8], tf.keras.backend.floatx()) for one in numbers())
    model = Sized(1)
    model(x)
    model.compile("sgd")
    batch = x, y, tf.ones(8, x.dtype)

    with pytest.raises(RefusalError, match=r"Sized.train_step, which ends with .*16 and 8.*line"):
        try_out(model, batch, (x, y), (x, y), several=True)
    with pytest.raises(ValueError, match="16 and 8"):
        try_out(model, batch, (x, y), (x, y))


def spread(y: Any, made: Any) -> Any:
    """No number for a single example."""
    del y
    return tf.reduce_mean(made / tf.math.reduce_std(made))


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_replica_without_examples_spoils_nothing(replicas: int) -> None:
    """The last batch has three examples, so the second of two replicas has none."""
    data = numbers()
    workload = Workload("spread", stacked(), data, data, spread, "sgd")

    weights, epochs = train_serial(workload, virtual_replicas=replicas)

    assert all(np.isfinite(array).all() for array in weights)
    assert np.isfinite([*epochs[-1].train.values(), *epochs[-1].validation.values()]).all()


class Turns(tf.keras.Model):
    """A line and its offset, trained in turn by a loss that couples the examples."""

    def __init__(self) -> None:
        super().__init__()
        self.line = layers.Dense(1, use_bias=False, kernel_initializer="ones")
        self.offset = layers.Dense(1, use_bias=False, kernel_initializer="ones")
        self.norm = layers.BatchNormalization(momentum=0.75, center=False, scale=False)
        self.steps = tf.Variable(0, trainable=False)
        self.keeps: Any = None
        self.line_optimizer = tf.keras.optimizers.SGD(0.03)
        self.offset_optimizer = tf.keras.optimizers.SGD(0.06)

    def call(self, x: Any, training: bool = False) -> Any:
        return self.line(self.norm(x, training=training)) + self.offset(tf.ones_like(x[:, :1]))

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        for part, optimizer in (
            (self.line, self.line_optimizer),
            (self.offset, self.offset_optimizer),
        ):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self(x, training=True) - y) ** 2) ** 2
            weights = part.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        self.steps.assign_add(1)
        if self.keeps is not None:
            self.keeps.assign(tf.reduce_mean(y))
        return {"loss": loss}


def turns() -> Any:
    """As its author compiles it."""
    model = Turns()
    model.compile(tf.keras.optimizers.SGD())
    return model


def by_hand(replicas: int) -> list[Any]:
    """[line, offset, moving mean, moving variance] of `Turns` after two epochs, by NumPy."""
    x, y = numbers()
    line, offset = np.ones((FEATURES, 1)), np.ones((1, 1))
    moving, size = np.stack([np.zeros(FEATURES), np.ones(FEATURES)]), GLOBAL_BATCH // replicas
    for epoch in range(2):
        for ids, true in batches(EXAMPLES, GLOBAL_BATCH, epoch):
            parts = [ids[i : i + size] for i in range(0, GLOBAL_BATCH, size)]
            counts = [min(max(true - i * size, 0), size) for i in range(replicas)]
            ends = [moving for _ in parts]
            for turn in range(2):
                gradient: Any = 0.0
                for r, (part, count) in enumerate(zip(parts, counts, strict=True)):
                    rows = part[: max(count, 1)]  # one without any is given one of another
                    mean, variance = x[rows].mean(axis=0), x[rows].var(axis=0)
                    ends[r] = 0.75 * ends[r] + 0.25 * np.stack([mean, variance])
                    normal = (x[rows] - mean) / np.sqrt(variance + 1e-3)
                    error = normal @ line + offset - y[rows]
                    inputs = normal if turn == 0 else np.ones((len(error), 1))
                    own = 2 * np.mean(error**2) * 2 * inputs.T @ error / len(error)
                    gradient = gradient + count / true * own
                if turn == 0:
                    line = line - 0.03 * gradient
                else:
                    offset = offset - 0.06 * gradient
            moving = np.mean(ends, axis=0)
    return [line, offset, *moving]


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_a_step_that_couples_its_batch_is_that_of_each_part(replicas: int) -> None:
    """Two optimizers in turn, statistics of each part, last batches of three and no examples."""
    workload = Workload(name="turns", model=turns, train=numbers())

    weights, _ = train_serial(workload, virtual_replicas=replicas)

    assert order(0, seed=SEED, total=EXAMPLES) != list(range(EXAMPLES))
    assert sum(np.array_equal(one, 2 * 3) for one in weights) == 1  # the steps of each replica
    found_ones = [one for one in weights if np.ndim(one)]
    for found, expected in zip(found_ones, by_hand(replicas), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_what_each_replica_sets_for_itself_is_named() -> None:
    """Nothing says what the one model of all replicas would hold."""

    def model() -> Any:
        made = turns()
        made.keeps = tf.Variable(0.0, trainable=False, name="kept", dtype=tf.float64)
        return made

    workload = Workload(name="kept", model=model, train=numbers())

    with pytest.raises(RefusalError, match="kept:0, which each replica sets from its own part"):
        train_serial(workload, virtual_replicas=2)


class Failing(Turns):
    """Fails on one part of one update."""

    def train_step(self, data: Any) -> dict[str, Any]:
        if next(CALLS) == 4:
            raise ZeroDivisionError("the author's own")
        return super().train_step(data)


CALLS = itertools.count()


def test_a_step_that_fails_on_one_part_ends_all() -> None:
    """No thread of another part is left waiting."""

    def model() -> Any:
        made = Failing()
        made.compile(tf.keras.optimizers.SGD())
        return made

    workload = Workload(name="fails", model=model, train=numbers())

    with pytest.raises(ZeroDivisionError):
        train_serial(workload, virtual_replicas=2)
    waiting = [one for one in threading.enumerate() if one.name == "virtual-replica"]
    for one in waiting:
        one.join(timeout=10)
    assert not [one for one in waiting if one.is_alive()]


def size(y: Any, made: Any) -> Any:
    """A metric of the author's own, which lets the model be given true examples only."""
    del y
    return tf.reduce_mean(tf.abs(made), axis=-1)


def test_a_replica_without_held_out_examples_counts_no_loss_of_an_output() -> None:
    """27 in batches of 12: of the last three, the second of two replicas has none."""

    def model() -> Any:
        x = tf.keras.Input((3,))
        outputs = {name: layers.Dense(1, name=name, kernel_initializer="ones")(x) for name in "ab"}
        return tf.keras.Model(x, outputs)

    x, y = numbers()
    told = []
    for replicas in (1, 2):
        both = {"a": y, "b": 2 * y}
        workload = Workload(
            *("two", model, (x, both), (2 * x, both)),
            loss={"a": "mse", "b": "mae"},
            optimizer="sgd",
            metrics=lambda: {"a": [size]},
        )
        _, epochs = train_serial(workload, virtual_replicas=replicas)
        told.append(epochs[-1].validation)

    assert {"a_loss", "b_loss", "a_size"} <= told[0].keys()
    assert told[1] == pytest.approx(told[0], rel=1e-12)
