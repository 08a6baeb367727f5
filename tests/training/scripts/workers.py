"""Trainings by workers of parameter servers, beside plain Keras.

`python workers.py numbers.npz fitted|plain|counted|free` writes what came of them.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np

import ringside
from ringside_core.keras import VERSION, tf
from ringside_core.specs import RefusalError

Answer = dict[str, Any]
ROWS, FEATURES = 23, 3


def numbers(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x [rows, features], y and weights [rows]; y is 0 or 1."""
    drawn = np.random.default_rng(seed)
    x = drawn.normal(size=(ROWS, FEATURES))
    return x, (x.sum(axis=1) > 0).astype("float64"), drawn.uniform(0.5, 2.0, ROWS)


def _model(**compiled: Any) -> Any:
    class Own(tf.keras.Model):
        """A step whose number is of its last batch, and a penalty."""

        def train_step(self, data: Any) -> Any:
            x, y, _ = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self(x, training=True)[:, 0] - y) ** 2)
            mine = self.trainable_variables
            gradients = tape.gradient(loss, mine)
            self.optimizer.apply_gradients(zip(gradients, mine, strict=True))
            return {"own": loss}

    inputs = tf.keras.Input((FEATURES,))
    hidden = tf.keras.layers.Dense(4, "tanh")(inputs)
    outputs = tf.keras.layers.Dense(1, "sigmoid")(hidden)
    own = compiled.pop("own", False)
    model = (Own if own else tf.keras.Model)(inputs, outputs)
    drawn = np.random.default_rng(7)
    model.set_weights([drawn.normal(size=each.shape) for each in model.get_weights()])
    metrics = {} if own else {"metrics": ["mae"], "weighted_metrics": ["mse"]}
    model.compile(tf.keras.optimizers.Adam(0.05), "binary_crossentropy", **metrics, **compiled)
    return model


def _arrays() -> tuple[dict[str, Any], dict[str, Any]]:
    x, y, _ = numbers(0)
    arguments = {"batch_size": 5, "epochs": 3, "initial_epoch": 1, "validation_split": 0.3}
    return {}, {**arguments, "x": x, "y": y, "class_weight": {0: 1.0, 1: 3.0}}


def _weighted() -> tuple[dict[str, Any], dict[str, Any]]:
    x, y, weight = numbers(0)
    arguments = {"batch_size": 6, "epochs": 2, "shuffle": "batch", "validation_data": numbers(1)}
    return {}, {**arguments, "x": x, "y": y, "sample_weight": weight, "validation_batch_size": 7}


def _dataset() -> tuple[dict[str, Any], dict[str, Any]]:
    table = tf.lookup.KeyValueTensorInitializer(tf.constant([0, 1]), tf.constant([1, 0]))
    others = tf.lookup.StaticHashTable(table, 0)
    scale = tf.Variable(np.full(FEATURES, 0.5))

    def noisy(x: Any, y: Any, weight: Any) -> Any:
        y = tf.cast(others.lookup(tf.cast(y, tf.int32)), "float64")
        return x * scale + tf.random.normal([FEATURES], dtype="float64"), y, weight

    data = tf.data.Dataset.from_tensor_slices(numbers(0)).shuffle(9).map(noisy).batch(5)
    validation = tf.data.Dataset.from_tensor_slices(numbers(1)).batch(8)
    return {}, {"x": data, "epochs": 4, "validation_data": validation, "validation_freq": 2}


def _steps() -> tuple[dict[str, Any], dict[str, Any]]:
    """Calls of two updates; with legacy Keras the last of an epoch is of one."""
    data = tf.data.Dataset.from_tensor_slices(numbers(0)).shuffle(9).repeat().batch(5)
    steps = 3 if VERSION == 2 else 4
    return {"steps_per_execution": 2}, {"x": data, "epochs": 3, "steps_per_epoch": steps}


def _own() -> tuple[dict[str, Any], dict[str, Any]]:
    data = tf.data.Dataset.from_tensor_slices(numbers(0)).batch(5)
    return {"own": True}, {"x": data, "epochs": 2}


PROGRAMS: dict[str, Callable[[], tuple[dict[str, Any], dict[str, Any]]]] = {
    "arrays": _arrays,
    "weighted": _weighted,
    "dataset": _dataset,
    "steps": _steps,
    "own": _own,
}


class Heard(tf.keras.callbacks.Callback):
    """Notes the numbers of batches and epochs."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[int] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.heard.append(batch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.heard.append(-1 - epoch)


def trained(name: str, scope: Callable[[], Any], fit: Callable[..., Any]) -> Answer:
    """What a program makes of a model."""
    tf.keras.utils.set_random_seed(11)
    x, y, _ = numbers(2)
    compiled, arguments = PROGRAMS[name]()
    with scope():
        model = _model(**compiled)
    evaluates = "own" not in compiled  # Keras makes metrics in the first step
    found: Answer = {"predicted before": model.predict(x, batch_size=9, verbose=0)}
    if evaluates:
        found["before"] = model.evaluate(x, y, batch_size=9, verbose=0)
    heard = Heard()
    history = fit(model, **arguments, verbose=0, callbacks=[heard])
    found |= {f"history {key}": value for key, value in history.history.items()}
    found |= {f"weights {i}": value for i, value in enumerate(model.get_weights())}
    found |= {"heard": heard.heard, "epochs": history.epoch}
    found["iterations"] = int(model.optimizer.iterations)
    if evaluates:
        found["after"] = model.evaluate(x, y, batch_size=9, verbose=0)
    return found | {"predicted": model.predict(x, batch_size=9, verbose=0)}


# Rows, those of a batch, and how they are drawn. Last batches of one row and of W + 1; orders that
# have no seed.
COUNTED = [(12, 4, "shuffled"), (9, 4, "ordered"), (11, 4, "ordered"), (9, 3, "whole")]
COUNTED += [(120, 4, "grouped")]


def counted(count: int, batch: int, drawn: str) -> Answer:
    """How often the gradient of each of `count` rows was applied, ÷ the rows of its update."""
    tf.random.set_seed(None)

    def numbered(i: Any) -> Any:  # some take longer than others before they draw
        work = tf.reduce_sum(tf.random.stateless_uniform([100_000 * (i % 4)], [0, 1]))
        return i, tf.random.uniform([1 + tf.cast(0.0 * work, tf.int32)])[0]

    data = tf.data.Dataset.range(count)
    if drawn == "shuffled":
        data = data.shuffle(count)
    if drawn == "grouped":  # the order is that of numbers drawn in a parallel map
        data = data.map(numbered, num_parallel_calls=4)
        data = data.group_by_window(
            lambda i, u: tf.cast(u * 5.0, tf.int64), lambda _, group: group.batch(2), 2
        )
        data = data.unbatch().map(lambda i, u: i)
        data = data.apply(tf.data.experimental.assert_cardinality(count))
    whole = drawn == "whole"  # of a size that the graph knows
    rows = data.batch(batch, drop_remainder=whole).map(
        lambda i: (tf.one_hot(i, count, dtype="float64"), i)
    )
    with ringside.scope():
        dense = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        model = tf.keras.Sequential([tf.keras.Input((count,)), dense])
        model.compile(tf.keras.optimizers.SGD(1.0), lambda _, made: -made[:, 0])
    history = ringside.fit(model, rows, epochs=2, verbose=0)
    applied = model.get_weights()[0][:, 0]
    counts = [sum(one) for one in history.staleness]
    return {
        "applied": applied,
        "updates": history.updates,
        "rows": history.rows,
        "stale updates": counts,
    }


def stale() -> Answer:
    """Worker 0 reads the weights, and then waits until worker 1 has made its update."""
    with ringside.scope():
        begun, done, looks = (tf.Variable(0.0, dtype="float64") for _ in range(3))

    def wait(times: float, seen: Any) -> None:
        """Ask the server so many times, and on until it has seen something."""
        i = tf.constant(0.0, "float64")
        while i < times or seen < 1:
            looks.assign_add(1)
            i += 1

    class Gated(tf.keras.Sequential):
        def train_step(self, data: Any) -> Any:
            if data[0, 0] < 1:  # the row of worker 0
                wait(100, looks)  # by now it has read
                begun.assign(1)
                wait(0, done)
                wait(100, looks)  # by now the other update is counted
            else:
                wait(0, begun)
                done.assign(1)
            return {"loss": tf.constant(0.0)}

    with ringside.scope():
        model = Gated([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
        model.compile(tf.keras.optimizers.SGD(), "mse")
    data = tf.data.Dataset.from_tensor_slices([[0.0], [1.0]]).batch(2)
    return {"staleness": ringside.fit(model, data, verbose=0).staleness}


def refused() -> Answer:
    """What workers cannot do, and how it is said; then something that they can."""

    class Batches(tf.keras.utils.Sequence):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, item: int) -> Any:
            return numbers(item)[:2]

    def generated() -> Iterator[Any]:
        while True:
            yield numbers(0)[:2]

    data = tf.data.Dataset.from_tensor_slices(numbers(0)).batch(5)
    in_python = data.map(lambda *p: (tf.numpy_function(lambda x: x, [p[0]], "float64"), *p[1:]))
    with ringside.scope():
        there = tf.Variable(1.0, dtype="float64")  # on a server
    asked: dict[str, dict[str, Any]] = {
        "sequence": {"x": Batches()},
        "generator": {"x": generated(), "steps_per_epoch": 2},
        "function": {"x": in_python},
        "placed": {"x": data.map(lambda x, y, w: (x + there, y, w))},
        "endless": {"x": data.repeat()},
        "unknown": {"x": data.filter(lambda *_: True)},
        "short": {"x": data, "steps_per_epoch": 4, "epochs": 2},
        "eager": {"x": data, "run_eagerly": True},
    }
    found: Answer = {}
    for name, arguments in asked.items():
        with ringside.scope():
            model = _model(run_eagerly=arguments.pop("run_eagerly", False))
        try:
            ringside.fit(model, **arguments, verbose=0)
        except RefusalError as error:
            found[name] = str(error)
    return found


def free() -> Answer:
    """Worker 1 waits in its second update until worker 0 has made all others."""
    with ringside.scope():
        made = [tf.Variable(0.0, dtype="float64") for _ in range(2)]

    class Gated(tf.keras.Sequential):
        def train_step(self, data: Any) -> Any:
            if data[0, 0] < 1:
                made[0].assign_add(1)
            else:
                while made[1] > 0 and made[0] < 8:
                    made[1].assign_add(0)
                made[1].assign_add(1)
            return {"loss": tf.constant(0.0)}

    with ringside.scope():
        model = Gated([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
        model.compile(tf.keras.optimizers.SGD(), "mse")
    data = tf.data.Dataset.from_tensor_slices([[0.0], [1.0]] * 5).batch(2)
    history = ringside.fit(model, data, verbose=0)
    return {"updates": history.updates, "made": [each.numpy() for each in made]}


if __name__ == "__main__":
    kind, results = sys.argv[2], dict[str, Answer]()
    if kind == "plain":
        tf.keras.backend.set_floatx("float64")
        results = {name: trained(name, nullcontext, tf.keras.Model.fit) for name in PROGRAMS}
    elif kind == "fitted":
        results = {name: trained(name, ringside.scope, ringside.fit) for name in PROGRAMS}
        results["refused"] = refused()
    elif kind == "free":
        results = {"free": free()}
    else:
        results = {f"{count} {drawn}": counted(count, n, drawn) for count, n, drawn in COUNTED}
        results["stale"] = stale()
    flat = {
        f"{head}: {key}": value for head, part in results.items() for key, value in part.items()
    }
    np.savez(sys.argv[1], **flat)
