"""A script with several trainings; `python trained.py numbers.npz` writes what came of them.

`trained` also runs with plain Keras instead of `ringside`, which is what is right.
"""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from ringside_core.keras import tf

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


PROGRAMS = (decided, within)


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
