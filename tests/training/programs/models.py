"""Programs in the style of their authors, and what plain Keras makes of them, by hand.

Their training steps know nothing of padding, weights or replicas.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ringside_core.keras import get_weights, set_weights, tf
from ringside_core.workloads.augment import tied
from ringside_core.workloads.workload import Workload

BATCH, EPOCHS = 6, 2
# The last batch holds 1 example, or 4: at two replicas the second one is empty, or part-filled.
# One of the sizes is trained by `fit`, the other by the loop.
SIZES = {13: "fit", 16: "loop"}


def numbers(examples: int) -> tuple[Any, Any]:
    """x [examples, 3] and y [examples, 1], float64."""
    generator = np.random.default_rng(5)
    x = generator.normal(size=(examples, 3))
    return x, x.sum(axis=1, keepdims=True) ** 2


class WithoutWeights(tf.keras.Model):
    """The step of Keras' guide: a loss object, a tracker, and no sample weights."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = tf.keras.layers.Dense(4, "tanh")
        self.last = tf.keras.layers.Dense(1)
        self.error = tf.keras.losses.MeanSquaredError()
        self.tracker = tf.keras.metrics.Mean(name="loss")
        self.mae = tf.keras.metrics.MeanAbsoluteError(name="mae")

    def call(self, x: Any) -> Any:
        return self.last(self.hidden(x))

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            made = self(x, training=True)
            loss = self.error(y, made)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.tracker.update_state(loss)
        self.mae.update_state(y, made)
        return {"loss": self.tracker.result(), "mae": self.mae.result()}

    def test_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        made = self(x, training=False)
        self.tracker.update_state(self.error(y, made))
        self.mae.update_state(y, made)
        lean = tf.reduce_mean(made - y)
        return {"loss": self.tracker.result(), "mae": self.mae.result(), "lean": lean}

    @property
    def metrics(self) -> list[Any]:
        return [self.tracker, self.mae]


class ByComputeLoss(tf.keras.Model):
    """The other step of Keras' guide: `compute_loss(y=…, y_pred=…)`, `minimize`, and no weights."""

    def __init__(self) -> None:
        super().__init__()
        self.last = tf.keras.layers.Dense(1, kernel_regularizer="l2")
        self.bare = False

    def call(self, x: Any) -> Any:
        return self.last(x)

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            made = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=made)
        self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
        self.compiled_metrics.update_state(y, made)
        results = {metric.name: metric.result() for metric in self.metrics}
        return {**results, "loss": loss} if self.bare else results


class BareLoss(ByComputeLoss):
    """Returns the loss itself, by the name that Keras' own has."""

    def __init__(self) -> None:
        super().__init__()
        self.bare = True


class Trackers(tf.keras.Model):
    """A traced step; trackers of losses by example, of sums, and weighted by the batch's size."""

    def __init__(self) -> None:
        super().__init__()
        self.last = tf.keras.layers.Dense(1)
        self.tracker = tf.keras.metrics.Mean(name="loss")
        self.total = tf.keras.metrics.Sum(name="total")
        self.by_size = tf.keras.metrics.Mean(name="by_size")
        self.optimizers = {"all": [tf.keras.optimizers.Adam(0.02)]}

    def call(self, x: Any) -> Any:
        return self.last(x)

    @tf.function
    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            errors = tf.reduce_mean((self(x, training=True) - y) ** 2, axis=1)
            loss = tf.reduce_mean(errors)
        gradients = tape.gradient(loss, self.trainable_variables)
        pairs = zip(gradients, self.trainable_variables, strict=True)
        self.optimizers["all"][0].apply_gradients(pairs)
        self.tracker.update_state(errors)
        self.total.update_state(loss)
        self.by_size.update_state(loss, tf.shape(x)[0])
        return {metric.name: metric.result() for metric in self.metrics}

    @property
    def metrics(self) -> list[Any]:
        return [self.tracker, self.total, self.by_size]


class OwnCompile(tf.keras.Model):
    """Its author's `compile` has other arguments; the step is Keras'."""

    def __init__(self) -> None:
        super().__init__()
        self.last = tf.keras.layers.Dense(1)

    def compile(self, rate: float) -> None:
        super().compile(tf.keras.optimizers.Adam(rate), "mse", metrics=["mae"])

    def call(self, x: Any) -> Any:
        return self.last(x)


class Distilled(tf.keras.Model):
    """Learns from a frozen teacher; its compile has metrics and no loss, as in Keras' example."""

    def __init__(self) -> None:
        super().__init__()
        self.student = tf.keras.layers.Dense(1)
        self.teacher = tf.keras.layers.Dense(1, "tanh")
        self.error = tf.keras.losses.MeanSquaredError()

    def compile(self, rate: float) -> None:
        super().compile(tf.keras.optimizers.Adam(rate), metrics=["mae"])

    def call(self, x: Any) -> Any:
        return self.student(x) + 0 * self.teacher(x)

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        soft = self.teacher(x, training=False)
        with tf.GradientTape() as tape:
            made = self.student(x, training=True)
            student_loss = self.error(y, made)
            loss = 0.1 * student_loss + 0.9 * self.error(soft, made)
        weights = self.student.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        self.compiled_metrics.update_state(y, made)
        results = {metric.name: metric.result() for metric in self.metrics}
        return {**results, "student_loss": student_loss}


class TwoPlayers(tf.keras.Model):
    """Two networks, two optimizers, losses by hand, no labels and no call, as in a GAN."""

    def __init__(self) -> None:
        super().__init__()
        layers = tf.keras.layers
        self.judge = tf.keras.Sequential(
            [layers.Dense(4, "tanh", input_shape=(3,)), layers.Dense(1)]
        )
        self.maker = tf.keras.Sequential([layers.Dense(3, input_shape=(3,))])

    def compile(self, judge_optimizer: Any, maker_optimizer: Any) -> None:
        super().compile()
        self.judge_optimizer, self.maker_optimizer = judge_optimizer, maker_optimizer

    def train_step(self, real: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            right, wrong = self.judge(real), self.judge(self.maker(tf.reverse(real, [1])))
            judged = tf.reduce_mean(tf.nn.softplus(-right)) + tf.reduce_mean(tf.nn.softplus(wrong))
        weights = self.judge.trainable_variables
        self.judge_optimizer.apply_gradients(
            zip(tape.gradient(judged, weights), weights, strict=True)
        )
        with tf.GradientTape() as tape:
            fooled = tf.reduce_mean(tf.nn.softplus(-self.judge(self.maker(tf.reverse(real, [1])))))
        weights = self.maker.trainable_variables
        self.maker_optimizer.apply_gradients(
            zip(tape.gradient(fooled, weights), weights, strict=True)
        )
        return {"judged": judged, "fooled": fooled}


def compiled_players() -> Any:
    """As its author compiles it."""
    model = TwoPlayers()
    model.compile(tf.keras.optimizers.Adam(0.02), tf.keras.optimizers.SGD(0.1, momentum=0.9))
    return model


def compiled(kind: Callable[[], Any], *arguments: Any) -> Any:
    """A model as its author compiles it."""
    model = kind()
    model.compile(*arguments)
    return model


def _with(kind: Callable[[], Any], examples: int, metrics: Any = ()) -> Workload:
    data = numbers(examples)
    return Workload(
        name=kind.__name__,
        model=kind,
        train=data,
        validation=data,
        loss="mse",
        optimizer=lambda: tf.keras.optimizers.Adam(0.02),
        metrics=metrics,
    )


COMPILED: dict[str, Callable[[], Any]] = {
    "trackers": lambda: compiled(Trackers),
    "own compile": lambda: compiled(OwnCompile, 0.02),
    "distilled": lambda: compiled(Distilled, 0.02),
}


def _compiled(name: str, examples: int) -> Workload:
    return Workload(name=name, model=COMPILED[name], train=numbers(examples))


def noisy(x: Any, y: Any) -> Any:
    """What is trained on, drawn anew for each example in each epoch."""
    return x + tf.random.normal([3], stddev=0.3, dtype=x.dtype), y


class Falling(tf.keras.optimizers.schedules.LearningRateSchedule):
    """A schedule as people write it, without `get_config`: fit never asks for one."""

    def __call__(self, step: Any) -> Any:
        return 0.02 / (1.0 + 0.1 * tf.cast(step, tf.keras.backend.floatx()))


def _augmented(examples: int) -> Workload:
    data = tf.data.Dataset.from_tensor_slices(numbers(examples))

    def model() -> Any:
        return tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(3,))])

    return Workload(
        name="augmented",
        model=model,
        train=data.map(noisy).batch(BATCH),
        loss="mse",
        optimizer=lambda: tf.keras.optimizers.Adam(Falling()),
    )


def _players(examples: int) -> Workload:
    return Workload(name="players", model=compiled_players, train=numbers(examples)[0])


PROGRAMS: dict[str, Callable[[int], Workload]] = {
    "without weights": lambda examples: _with(WithoutWeights, examples),
    "by compute_loss": lambda examples: _with(ByComputeLoss, examples, ["mae"]),
    "bare loss": lambda examples: _with(BareLoss, examples),
    "trackers": lambda examples: _compiled("trackers", examples),
    "own compile": lambda examples: _compiled("own compile", examples),
    "distilled": lambda examples: _compiled("distilled", examples),
    "players": _players,
    "augmented": _augmented,
}


def plainly_trained(
    name: str, examples: int, seed: int, initial: list[Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Final weights of plain Keras over the data in order, and its history's last epoch."""
    x, y = numbers(examples)
    model = PROGRAMS[name](examples).model()
    if name == "players":
        data = tf.data.Dataset.from_tensor_slices(x)
    else:
        model(x[:1])
        data = tf.data.Dataset.from_tensor_slices((x, y))
    if name not in {"players", *COMPILED}:
        metrics = ["mae"] if name == "by compute_loss" else []
        rate = Falling() if name == "augmented" else 0.02
        model.compile(tf.keras.optimizers.Adam(rate), "mse", metrics)
    set_weights(model, initial)
    told: dict[str, Any] = {}
    for epoch in range(EPOCHS):
        of_epoch = data
        if name == "augmented":
            draw = tied(noisy, 2 * seed)  # of the training split
            rows = [draw(epoch, i, (x[i], y[i])) for i in range(examples)]
            of_epoch = tf.data.Dataset.from_tensor_slices(tuple(map(list, zip(*rows, strict=True))))
        history = model.fit(of_epoch.batch(BATCH), epochs=1, verbose=0).history
        told = {key: values[-1] for key, values in history.items()}
    return get_weights(model), told
