"""Trainings that are broken off and go on, in one process; TF_USE_LEGACY_KERAS says which Keras."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from backends import make_backend
from ringside_core.keras import KERAS, VERSION, get_weights, tf
from ringside_core.specs import AUTO, RecordInProgress, Surroundings
from tests.unit.stats.factory import spec_of
from trainers.driver import Listener
from trainers.fit import train_call
from trainers.fit_call import fit_call
from trainers.step import Steps

EPOCHS = 3
X = np.arange(46.0).reshape(23, 2) / 46  # batches of four: the last has three rows


class Breaks(Listener):
    """Ends a training after so many updates."""

    def __init__(self, after: int) -> None:
        self._after = after

    def on_step(self, done: int) -> None:
        """Count them."""
        if done >= self._after:
            raise InterruptedError

    def on_epoch_end(self, epoch: int, record: Any) -> None:
        """It comes after those that save."""
        if self._after < 0 and epoch + 1 == -self._after:
            raise InterruptedError


class Numbers(tf.keras.callbacks.Callback):
    """Keeps the numbers of batches."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = list[int]()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Of each epoch, from 0."""
        self.kept.append(batch)


class Evaluates(tf.keras.callbacks.Callback):
    """Reads other data before the training reads its own."""

    def on_train_begin(self, logs: Any = None) -> None:
        """Before the first epoch."""
        self.model.evaluate(tf.data.Dataset.from_tensor_slices((X, X[:, :1])).batch(2), verbose=0)


class Batches(tf.keras.utils.Sequence):
    """Six batches, in another order in each epoch."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        return X[4 * index : 4 * index + 4], X[4 * index : 4 * index + 4, :1]


def slices() -> Any:
    """Shuffled batches."""
    return tf.data.Dataset.from_tensor_slices((X, X[:, :1])).shuffle(23).batch(4)


def generated() -> Iterator[Any]:
    """Without an end, and drawn by NumPy."""
    draws = np.random.default_rng(3)
    while True:
        rows = draws.permutation(23)[:4]
        yield X[rows], X[rows, :1]


Case = Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]
CASES: dict[str, Case] = {
    "arrays": lambda: ((X, X[:, :1]), {"batch_size": 4}),
    "arrays, halves": lambda: ((X, X[:, :1]), {"batch_size": 4, "steps_per_epoch": 3}),
    "data set": lambda: ((slices(),), {}),
    "two at once": lambda: ((slices(),), {"together": 2}),
    "halves": lambda: ((slices(),), {"steps_per_epoch": 3}),
    "a pass": lambda: ((slices(),), {"steps_per_epoch": 6}),
    "endless": lambda: ((slices().repeat(),), {"steps_per_epoch": 4}),
    "unknown": lambda: ((slices().unbatch().filter(lambda x, y: x[0] < 0.9).batch(4),), {}),
    "sequence": lambda: ((Batches(),), {"shuffle": False}),
    "generator": lambda: ((generated(),), {"steps_per_epoch": 4}),
}


def train(folder: Path, case: Case, *, stop: int = 0, resume: bool = False) -> dict[str, Any]:
    """What a training leaves; it is broken off after so many updates, or epochs: -epochs."""
    KERAS.begin_names()
    tf.keras.utils.set_random_seed(5)
    data, arguments = case()
    together, numbers = arguments.pop("together", 1), Numbers()
    spec = spec_of(
        "serial",
        global_batch=4,
        epochs=EPOCHS,
        keras=VERSION,
        save="all",
        checkpoint_steps=together,
        steps_per_execution=together,
        resume_from=AUTO if resume else None,
    )
    with make_backend(spec, Surroundings()) as backend:
        steps, record = Steps(backend), RecordInProgress.begun(spec)
        layers = tf.keras.layers
        model = tf.keras.Sequential([layers.Input((2,)), layers.Dropout(0.4), layers.Dense(1)])
        model.compile(tf.keras.optimizers.SGD(0.1, momentum=0.9), "mse", metrics=["mae"])
        call = fit_call(model, *data, epochs=EPOCHS, callbacks=[numbers, Evaluates()], **arguments)
        listeners = [Breaks(stop)] if stop else []
        try:
            history = train_call(
                call, record, steps, run_dir=folder, number=1, listeners=listeners
            ).history
        except InterruptedError:
            return {}
    return {
        "weights": np.concatenate([one.ravel() for one in get_weights(model)]),
        "ledgers": [epoch.ledger for epoch in record.epochs],
        "steps": [epoch.steps for epoch in record.epochs],
        "numbers": numbers.kept,
        **history,
    }


def check(name: str) -> None:
    """A case that is broken off within its first and second epoch and between them."""
    case = CASES[name]
    with TemporaryDirectory() as folder:
        whole = train(Path(folder), case)
    of_epoch = whole["steps"][0]
    last = [] if name == "unknown" else [of_epoch]  # there it is refused
    for stop in (2, *last, of_epoch + 2, -1, -2):
        with TemporaryDirectory() as folder:
            assert train(Path(folder), case, stop=stop) == {}
            again = train(Path(folder), case, resume=True)
        left = len(again["ledgers"])
        said = f"{name}, broken off at {stop}"
        assert again["ledgers"] == whole["ledgers"][-left:], said
        for key in ("weights", "loss", "mae"):
            found, expected = np.asarray(again[key]), np.asarray(whole[key])
            if key != "weights":
                expected = expected[-len(found) :]
            np.testing.assert_allclose(found, expected, rtol=1e-5, err_msg=f"{said}: {key}")
        if name != "unknown":  # a checkpoint holds what the callback has learned until then
            assert again["numbers"] == whole["numbers"], said


if __name__ == "__main__":
    for asked in sys.argv[1:] or CASES:
        check(asked)
    print("all right")
