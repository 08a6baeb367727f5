"""A training that takes turns goes on until it is ended, whatever its author asks for."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from launch.turns import END
from ringside_core.keras import tf
from trainers.fit_call import FitCall, fit_call
from trainers.turns import WaitForTurn

X, Y = np.ones((40, 3), np.float32), np.ones((40, 1), np.float32)


def asked(**arguments: Any) -> FitCall:
    """Two epochs of ten batches, from arrays if nothing else is said."""
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(3,))])
    model.compile("sgd", "mse")
    return fit_call(model, **{"x": X, "y": Y, "batch_size": 4, "epochs": 2, **arguments})


def trained(call: FitCall, *, updates: int) -> tuple[int, list[int]]:
    """Updates that are made until it is stopped after so many, and those of each epoch."""
    made: list[int] = []

    class Stops(tf.keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            made.append(0)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            made[-1] += 1
            self.model.stop_training = sum(made) >= updates

    call.model.fit(**call.given(callbacks=[Stops()], verbose=0).arguments)
    return sum(made), made


def batches(count: int) -> Any:
    """A data set of so many."""
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(4).take(count)


@pytest.mark.parametrize(
    ("arguments", "epoch"),
    [
        ({}, 10),
        ({"x": batches(10), "y": None, "batch_size": None}, 10),
        # as many batches as both epochs have, and no more
        ({"x": batches(10), "y": None, "batch_size": None, "steps_per_epoch": 5}, 5),
        ({"x": batches(10).repeat(), "y": None, "batch_size": None, "steps_per_epoch": 10}, 10),
    ],
)
def test_it_goes_on_past_the_authors_epochs(arguments: dict[str, Any], epoch: int) -> None:
    """His data begin again; each epoch has as many batches as before."""
    call = asked(**arguments)
    call = call.given(**{name: None for name in arguments if arguments[name] is None})

    done, made = trained(call.without_end(1000), updates=47)

    assert done == 47
    assert made == [epoch] * (47 // epoch) + [47 % epoch]


@pytest.mark.parametrize(("every", "validated"), [(None, [1, 2]), (2, [2]), ([1, 7], [1])])
def test_it_is_validated_as_its_author_asks_and_then_no_more(
    every: Any, validated: list[int]
) -> None:
    """Behind his epochs a validation would take time and tell nothing."""
    call = asked(validation_freq=every) if every else asked()

    assert call.without_end(1000).arguments["validation_freq"] == validated
    assert call.without_end(1000).last_epoch == 1000


def test_the_word_that_ends_it() -> None:
    """It stops behind the update at which all processes wait, and is not validated again."""
    allowed, waited = iter([3.0, 3.0, 6.0, END]), list[int]()
    model, validates = SimpleNamespace(stop_training=False), [1, 2]
    turn = WaitForTurn(lambda: next(allowed), waited.append, validates)
    turn.training = SimpleNamespace(updates=None, model=model)  # type: ignore[assignment]
    turn.clock = SimpleNamespace(paused=nullcontext)  # type: ignore[assignment]

    for done in range(1, 7):
        assert not model.stop_training
        turn.on_step(done)

    assert waited == [3, 6]
    assert (model.stop_training, validates) == (True, [])
