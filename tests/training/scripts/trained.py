"""A script with several trainings; `python trained.py numbers.npz` writes what came of them.

`trained` also runs with plain Keras in the place of `ringside`, which is what is right.
"""

import json
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ringside_core.keras import tf
from ringside_core.workloads.step import step

BATCH, EPOCHS, EXAMPLES = 12, 8, 65  # the last batch is short: 5 examples
callbacks, layers = tf.keras.callbacks, tf.keras.layers
Scope = Callable[[], AbstractContextManager[Any]]
Fit = Callable[..., Any]


def data(seed: int, count: int = EXAMPLES) -> tuple[np.ndarray, np.ndarray]:
    """x [count, 3] and y [count, 1]."""
    drawn = np.random.default_rng(seed)
    x = drawn.normal(size=(count, 3))
    return x, np.sin(x.sum(axis=1, keepdims=True)) + drawn.normal(size=(count, 1)) / 5


def net(width: int = 5) -> Any:
    """Two layers."""
    return tf.keras.Sequential(
        [layers.Dense(width, activation="tanh", input_shape=(3,)), layers.Dense(1)]
    )


class Counted(tf.keras.callbacks.Callback):
    """Counts what it is said, changes the rate in each step, validates with half the weights."""

    def __init__(self) -> None:
        super().__init__()
        self.said = dict.fromkeys(("train", "epochs", "steps", "ends", "tests"), 0)
        self.tested = 0.0

    def on_train_begin(self, logs: Any = None) -> None:
        self.said["train"] += 1

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.said["epochs"] += epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.said["steps"] += batch
        tf.keras.backend.set_value(self.model.optimizer.lr, 0.1 / (2 + self.said["ends"]))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.said["ends"] += 1

    def on_test_begin(self, logs: Any = None) -> None:
        self.said["tests"] += 1
        self._own = self.model.get_weights()
        self.model.set_weights([0.5 * value for value in self._own])

    def on_test_end(self, logs: Any = None) -> None:
        self.model.set_weights(self._own)
        self.tested = logs["loss"]


class OwnStep(tf.keras.Model):
    """A model with a training step of its own, which sums, and divides as under a strategy."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = net()
        self.summed = tf.keras.losses.MeanSquaredError("sum")
        self.tested = tf.keras.metrics.Mean("tested")

    def call(self, x: Any) -> Any:
        return self.inner(x)

    def train_step(self, batch: Any) -> Any:
        x, y = batch
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(tf.math.squared_difference(self(x), y)[:, 0])
            added = 0.1 * tf.reduce_sum(self.trainable_variables[0] ** 2)
            loss += tf.nn.scale_regularization_loss(added) + 0.05 * self.summed(y, self(x))
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return {"loss": loss}

    def test_step(self, batch: Any) -> Any:
        x, y = batch
        self.tested.update_state(tf.keras.losses.MeanSquaredError()(y, self(x)))
        return {"loss": self.tested.result()}


class Held(tf.keras.callbacks.Callback):
    """Changes the rate of an optimizer that it holds, evaluates, and stops at a beginning."""

    def __init__(self, optimizer: Any, evaluated: list[float]) -> None:
        super().__init__()
        self._optimizer, self._evaluated = optimizer, evaluated

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._optimizer.learning_rate.assign(0.05 / (1 + epoch))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        x, y = data(9, 24)
        self._evaluated.append(self.model.evaluate(x, y, batch_size=BATCH, verbose=0)[1])


def squared(y: Any, made: Any) -> Any:
    """A loss for each example."""
    return tf.reduce_mean(tf.math.squared_difference(y, made), axis=-1)


def held(scope: Scope, fit: Fit, folder: Path) -> tuple[Any, Any]:
    """A callback with the optimizer of the script; the next training goes on at its rate.

    The loss is a function of the author's own: the second history must tell it too.
    """
    tf.keras.utils.set_random_seed(6)
    evaluated: list[float] = []
    with scope():
        model, optimizer = net(), tf.keras.optimizers.SGD(0.5, momentum=0.5)
        model.compile(optimizer, squared, metrics=["mae"])
    said = {"batch_size": BATCH, "shuffle": False, "verbose": 0}
    fit(model, *data(8), epochs=2, callbacks=[Held(optimizer, evaluated)], **said)
    drawn = float(np.random.random())
    history = fit(model, *data(8), epochs=1, **said)
    history.history |= {"evaluated": evaluated, "drawn": [drawn]}
    history.history["rate"] = [float(optimizer.learning_rate.numpy())]
    return model, history


def endless(scope: Scope, fit: Fit, folder: Path) -> tuple[Any, Any]:
    """Epochs of seven updates; a pass is five and five examples of a sixth."""
    tf.keras.utils.set_random_seed(7)
    with scope():
        model = net()
        model.compile(tf.keras.optimizers.SGD(0.1, momentum=0.5), "mse", metrics=["mae"])
    endless = tf.data.Dataset.from_tensor_slices(data(10)).repeat().batch(BATCH)
    return model, fit(model, endless, steps_per_epoch=7, epochs=3, verbose=0)


def padded(scope: Scope, fit: Fit, folder: Path) -> tuple[Any, Any]:
    """Sentences, each batch as long as its longest one; the padding is masked."""
    tf.keras.utils.set_random_seed(8)
    with scope():
        model = tf.keras.Sequential(
            [
                tf.keras.Input((None,), dtype="int64"),
                layers.Embedding(9, 4, mask_zero=True),
                layers.LSTM(3),
                layers.Dense(1),
            ]
        )
        model.compile(tf.keras.optimizers.SGD(0.1, momentum=0.5), "mse", metrics=["mae"])
    words = tf.data.Dataset.range(EXAMPLES).map(
        lambda i: (1 + tf.range(i, i + 1 + i * 7 % 13) % 8, tf.cast(i % 5, tf.float64))
    )
    held_out = words.take(30).padded_batch(BATCH)  # its longest is shorter
    said = {"validation_data": held_out, "epochs": 2, "verbose": 0}
    return model, fit(model, words.padded_batch(BATCH), **said)


class Mixed(tf.keras.utils.Sequence):
    """Batches whose rows are in a new order at each reading, which no update depends on."""

    def __len__(self) -> int:
        return -(-EXAMPLES // BATCH)

    def __getitem__(self, index: int) -> Any:
        x, y = (part[index * BATCH : (index + 1) * BATCH] for part in data(14))
        rows = np.random.permutation(len(x))
        return x[rows], y[rows]


def drawn(scope: Scope, fit: Fit, folder: Path) -> tuple[Any, Any]:
    """Batches that NumPy draws: each process must take its part of the same ones."""
    tf.keras.utils.set_random_seed(14)
    with scope():
        model = net()
        model.compile(tf.keras.optimizers.SGD(0.1, momentum=0.5), "mse", metrics=["mae"])
    return model, fit(model, Mixed(), epochs=2, shuffle=False, verbose=0)


def decided(scope: Scope, fit: Fit, folder: Path) -> tuple[Any, Any]:
    """Callbacks that decide by the metrics of the validation, and that write files."""
    tf.keras.utils.set_random_seed(1)
    with scope():
        model = net()
        model.compile(tf.keras.optimizers.SGD(0.3, momentum=0.9), "mse", metrics=["mae"])
    history = fit(
        model,
        *data(1),
        batch_size=BATCH,
        epochs=EPOCHS,
        shuffle=False,
        verbose=0,
        validation_data=data(2, 33),
        callbacks=[
            callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.95),
            callbacks.ReduceLROnPlateau(patience=0, factor=0.5),
            callbacks.CSVLogger(str(folder / "log.csv")),
            callbacks.ModelCheckpoint(str(folder / "best.keras"), save_best_only=True),
            callbacks.EarlyStopping(patience=2, restore_best_weights=True),
        ],
    )
    return model, history


def stepwise(scope: Scope, fit: Fit, folder: Path) -> tuple[Any, Any]:
    """A callback that is called in every step, and a split of arrays."""
    tf.keras.utils.set_random_seed(2)
    with scope():
        model = net()
        model.compile(tf.keras.optimizers.SGD(), "mse")
    counted = Counted()
    history = fit(
        model,
        *data(3),
        batch_size=BATCH,
        epochs=2,
        shuffle=False,
        verbose=0,
        validation_split=0.2,
        callbacks=[counted],
    )
    history.history.update({name: [float(value)] for name, value in counted.said.items()})
    history.history["tested"] = [counted.tested]
    return model, history


def staged(scope: Scope, fit: Fit, folder: Path) -> tuple[Any, Any]:
    """Two trainings, the second on what the first has left; then part of it frozen."""
    tf.keras.utils.set_random_seed(3)
    with scope():
        model = net()
        model.compile("adam", "mse", metrics=["mae"])
    said = {"batch_size": BATCH, "shuffle": False, "verbose": 0}
    fit(model, *data(4), epochs=2, **said)
    fit(model, *data(4), epochs=3, initial_epoch=2, **said)
    model.layers[0].trainable = False
    with scope():
        model.compile(tf.keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    history = fit(model, *data(4), epochs=5, initial_epoch=3, **said)
    x, y = data(5, 24)
    evaluated = model.evaluate(x, y, batch_size=BATCH, verbose=0, return_dict=True)
    history.history.update({f"evaluated {name}": [value] for name, value in evaluated.items()})
    return model, history


def own_step(scope: Scope, fit: Fit, folder: Path) -> tuple[Any, Any]:
    """A training step of the author's own, twice."""
    tf.keras.utils.set_random_seed(4)
    with scope():
        model = OwnStep()
        model.build((None, 3))
        tried = tf.keras.losses.MeanAbsoluteError()(np.ones((4, 1)), model(np.ones((4, 3))))
        model.compile(tf.keras.optimizers.SGD(0.1))
    for _ in range(2):
        # A short last batch counts by batches in plain Keras.
        x, y = data(6, 5 * BATCH)
        history = fit(model, x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    history.history.pop("loss", None)  # plain Keras tells that of the last batch
    evaluated = model.evaluate(*data(18, BATCH), batch_size=BATCH, verbose=0)
    model.tested.reset_state()  # each replica has counted one number; Keras 2 calls them weights
    history.history |= {"evaluated": [evaluated], "tried": [float(tried)]}
    return model, history


def looped(scope: Scope, fit: Fit, folder: Path) -> tuple[Any, Any]:
    """A step function with two optimizers, a metric and a variable that no model holds."""
    tf.keras.utils.set_random_seed(5)
    with scope():
        model, shift = net(), tf.Variable(0.1, dtype=tf.keras.backend.floatx())
        parts = {
            "optimizer": tf.keras.optimizers.Adam(0.01),
            "slow": tf.keras.optimizers.SGD(0.004),
        }
        seen = tf.keras.metrics.MeanAbsoluteError(name="seen")

    @step
    @tf.function
    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape(persistent=True) as tape:
            made = model(x, training=True) + shift
            losses = tf.math.squared_difference(made, y)[:, 0]
            # Of the short last batch this is less than its mean.
            loss = tf.nn.compute_average_loss(losses, global_batch_size=BATCH)
        variables = model.trainable_variables
        parts["optimizer"].apply_gradients(
            zip(tape.gradient(loss, variables), variables, strict=True)
        )
        # Of a loss for each example it is that of their sum.
        parts["slow"].apply_gradients([(tape.gradient(losses, shift), shift)])
        seen.update_state(y, made)
        return {"loss": loss, "seen": seen.result()}

    x, y = data(7)
    history = fit(train_step, x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    history.history = {"seen": history.history["seen"], "shift": [float(shift.numpy())]}
    model.optimizer = parts["optimizer"]
    return model, history


def one_number(y: Any, made: Any) -> Any:
    """A loss or a metric that is one number for a batch."""
    return tf.reduce_mean(tf.math.squared_difference(y, made))


def within(scope: Scope, fit: Fit, folder: Path) -> tuple[Any, Any]:
    """A scope that is entered twice and is not left for the fit; one number for each batch."""
    tf.keras.utils.set_random_seed(9)
    opened = scope()
    with opened:
        model = net()
    with opened:
        model.compile(tf.keras.optimizers.SGD(0.1), one_number, metrics=[one_number, "mae"])
        held_out = data(12, 2 * BATCH)  # plain Keras counts a short last batch as a whole one
        said = {"batch_size": BATCH, "epochs": 2, "validation_data": held_out, "verbose": 0}
        return model, fit(model, *data(11), shuffle=False, **said)


def unweighted(scope: Scope, fit: Fit, folder: Path) -> tuple[Any, Any]:
    """Weights of examples, some of them 0, beside metrics that count each example once."""
    tf.keras.utils.set_random_seed(10)
    with scope():
        model = net()
        # Some weights are 0, and the last batches are short.
        counts = [tf.keras.metrics.TruePositives(name="hits"), "mae"]
        model.compile(tf.keras.optimizers.SGD(0.1), "mse", metrics=counts)
    (x, y), (held_out, wanted) = data(13), data(14, 33)
    return model, fit(
        model,
        x,
        (y > 0).astype(float),
        sample_weight=np.arange(EXAMPLES) % 4 / 2.0,
        validation_data=(held_out, (wanted > 0).astype(float), np.arange(33) % 3 / 1.0),
        batch_size=BATCH,
        epochs=2,
        shuffle=False,
        verbose=0,
    )


def asked(scope: Scope, fit: Fit, folder: Path) -> tuple[Any, Any]:
    """Weights of classes beside both kinds of metrics; a part of the validation, every other time.

    Then steps in Python, over labels of which a filter leaves some.
    """
    tf.keras.utils.set_random_seed(17)
    with scope():
        model = net()
        model.compile(tf.keras.optimizers.SGD(0.1), "mse", ["mae"], weighted_metrics=["mse"])
    (x, y), (held_out, wanted) = data(19), data(20, 33)
    history = fit(
        model,
        x,
        (y > 0).astype(float),
        batch_size=BATCH,
        epochs=4,
        shuffle=False,
        verbose=0,
        class_weight={0: 1.0, 1: 2.0},
        validation_data=(held_out, wanted),
        validation_batch_size=7,
        validation_steps=3,
        validation_freq=2,
    )
    with scope():
        model.compile(tf.keras.optimizers.SGD(0.1), "mse", run_eagerly=True)
    some = tf.data.Dataset.from_tensor_slices((x, y)).filter(lambda x, y: y[0] < 1).batch(BATCH)
    history.history["eager"] = fit(model, some, verbose=0).history["loss"]
    return model, history


def saved(scope: Scope, fit: Fit, folder: Path) -> tuple[Any, Any]:
    """A file keeps of "accuracy" what the training has made of it: here, of numbered classes."""
    tf.keras.utils.set_random_seed(15)
    with scope():
        model = tf.keras.Sequential([layers.Dense(2, "softmax", input_shape=(3,))])
        model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    x, y = data(15)
    classes = (y > 0).astype(float)
    history = fit(model, x, classes, batch_size=BATCH, epochs=1, shuffle=False, verbose=0)
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras calls this format old; people have such files
        model.save(f"{place}/model.h5")
        file = h5py.File(f"{place}/model.h5")
        metrics = json.loads(file.attrs["training_config"])["metrics"]
    history.history = {"kept": [json.dumps(metrics)]}
    return model, history


class Compared(tf.keras.layers.Layer):
    """Adds a loss for each example, as a layer of connectionist temporal classification does."""

    def call(self, y: Any, made: Any) -> Any:
        self.add_loss(tf.math.squared_difference(y, made))
        return made


def added(scope: Scope, fit: Fit, folder: Path) -> tuple[Any, Any]:
    """A model without a compiled loss."""
    tf.keras.utils.set_random_seed(16)
    with scope():
        inputs = {"x": tf.keras.Input((3,)), "y": tf.keras.Input((1,))}
        model = tf.keras.Model(inputs, Compared()(inputs["y"], net()(inputs["x"])))
        model.compile(tf.keras.optimizers.SGD(0.004))
    (x, y), (held_out, wanted) = data(16), data(17, 33)
    said = {"batch_size": BATCH, "epochs": 2, "shuffle": False, "verbose": 0}
    tested = {"x": held_out, "y": wanted}
    return model, fit(model, {"x": x, "y": y}, validation_data=(tested,), **said)


class Late(tf.keras.Model):
    """Its layers have no weights before its first call."""

    def __init__(self) -> None:
        super().__init__()
        one, other = (tf.keras.initializers.GlorotUniform(seed=seed) for seed in (8, 9))
        self.inner = tf.keras.Sequential(
            [
                layers.Dense(4, activation="tanh", kernel_initializer=one),
                layers.Dense(1, kernel_initializer=other),
            ]
        )

    def call(self, x: Any) -> Any:
        return self.inner(x)


def unbuilt(scope: Scope, fit: Fit, folder: Path) -> tuple[Any, Any]:
    """A step function whose models are not built: the second one gets what the first one makes."""
    with scope():
        start = tf.keras.initializers.GlorotUniform(seed=7)
        first = tf.keras.Sequential([layers.Dense(3, kernel_initializer=start)])
        model, optimizer = Late(), tf.keras.optimizers.Adam(0.01)
        error = tf.keras.losses.MeanSquaredError()
        seen = tf.keras.metrics.MeanAbsoluteError(name="seen")

    @step
    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            hidden = first(x, training=True)
            loss = error(y, hidden)
            made = model(hidden, training=True)
            loss += error(y, made)
        mine = first.trainable_variables + model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, mine), mine, strict=True))
        seen.update_state(y, made)
        return {"loss": loss, "seen": seen.result()}

    x, y = data(8)
    history = fit(train_step, x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    sums = [float(np.abs(weight).sum()) for weight in first.get_weights()]
    history.history = {"seen": history.history["seen"], "first": sums}
    model.optimizer = optimizer
    return model, history


class WithoutCall(tf.keras.Model):
    """Only its steps run its nets, the second one after a gradient of the first."""

    def __init__(self) -> None:
        super().__init__()
        one, other = (tf.keras.initializers.GlorotUniform(seed=seed) for seed in (10, 11))
        self.first = tf.keras.Sequential([layers.Dense(3, "tanh", kernel_initializer=one)])
        self.second = layers.Dense(1, kernel_initializer=other)

    def train_step(self, batch: Any) -> Any:
        x, y = batch
        with tf.GradientTape() as tape:
            hidden = self.first(x)
            below = tf.reduce_mean((hidden - y) ** 2)
        mine = self.first.trainable_variables
        gradients = tape.gradient(below, mine)
        with tf.GradientTape() as tape:
            made = self.second(hidden)
            loss = self.compiled_loss(y, made)
        more = self.second.trainable_variables
        gradients += tape.gradient(loss, more)
        self.optimizer.apply_gradients(zip(gradients, mine + more, strict=True))
        self.compiled_metrics.update_state(y, made)
        return {one.name: one.result() for one in self.metrics}

    def test_step(self, batch: Any) -> Any:
        x, y = batch
        self.compiled_loss(y, self.second(self.first(x)))
        return {one.name: one.result() for one in self.metrics}


def without_call(scope: Scope, fit: Fit, folder: Path) -> tuple[Any, Any]:
    """A model that is never called: its losses and weights are made by its step."""
    with scope():
        model = WithoutCall()
        model.compile(tf.keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    said = {"batch_size": BATCH, "epochs": 2, "shuffle": False, "verbose": 0}
    return model, fit(model, *data(9), **said)


class MadeInBuild(tf.keras.layers.Layer):
    """Its layer is made, without a seed, when it is built."""

    def build(self, shape: Any) -> None:
        self.inner = layers.Dense(3, "tanh")

    def call(self, x: Any) -> Any:
        return self.inner(x)


class Unlabelled(WithoutCall):
    """The same of data without labels, which are to come out as they were."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = MadeInBuild(), layers.Dense(3)

    def train_step(self, batch: Any) -> Any:
        return super().train_step((batch, batch))

    def test_step(self, batch: Any) -> Any:
        return super().test_step((batch, batch))


def unlabelled(scope: Scope, fit: Fit, folder: Path) -> tuple[Any, Any]:
    """A step makes layers whose weights follow the script's own seed."""
    tf.keras.utils.set_random_seed(12)
    with scope():
        net()  # it draws before
        model = Unlabelled()
        model.compile(tf.keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    batches = tf.data.Dataset.from_tensor_slices(data(10)[0]).batch(BATCH)
    return model, fit(model, batches, epochs=2, verbose=0)


def named(scope: Scope, fit: Fit, folder: Path) -> tuple[Any, Any]:
    """A step that names the optimizer with which its model is compiled."""
    tf.keras.utils.set_random_seed(13)
    with scope():
        optimizer = tf.keras.optimizers.Adam(0.01)

        class Named(tf.keras.Sequential):
            def train_step(self, batch: Any) -> Any:
                x, y = batch
                with tf.GradientTape() as tape:
                    loss = self.compiled_loss(y, self(x, training=True))
                mine = self.trainable_variables
                optimizer.apply_gradients(zip(tape.gradient(loss, mine), mine, strict=True))
                return {"loss": loss}

        model = Named(net().layers)
        model.compile(optimizer, "mse")
    said = {"batch_size": BATCH, "epochs": 2, "shuffle": False, "verbose": 0}
    return model, fit(model, *data(11, 60), **said)


PROGRAMS = (
    *(decided, stepwise, staged, own_step, looped),
    *(held, endless, padded, drawn, unbuilt, within, unweighted, saved, added),
    *(without_call, unlabelled, named, asked),
)


def trained(scope: Scope, fit: Fit, folder: Path) -> dict[str, np.ndarray]:
    """Histories and final weights of all programs, by name."""
    found: dict[str, np.ndarray] = {}
    for program in PROGRAMS:
        model, history = program(scope, fit, folder)
        name = program.__name__
        found |= {f"{name} {key}": np.array(column) for key, column in history.history.items()}
        found |= {f"{name} {i}": value for i, value in enumerate(model.get_weights())}
        found[f"{name} epochs"] = np.array(history.epoch)
        optimizer = type(model.optimizer).__module__.partition(".")[0]
        found[f"{name} optimizer"] = np.array(optimizer)
    return found


if __name__ == "__main__":
    import ringside

    numbers = Path(sys.argv[1])
    results = trained(ringside.scope, ringside.fit, numbers.parent)
    if ringside.is_chief():
        np.savez(numbers, **results)
