"""A training with callbacks that is broken off ends as the one that was not."""

import dataclasses
import json
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringside_core.keras import tf
from ringside_core.specs import AUTO, RecordInProgress, RefusalError
from ringside_core.workloads.workload import Workload
from tests.training.momentum import STEPS, momentum, train_serial
from trainers import checkpoint
from trainers.callback_state import CallbackState, Learned

pytestmark = pytest.mark.usefixtures("warm")
EPOCHS = 6


class Restless(tf.keras.callbacks.Callback):
    """An author's own, which does something everywhere, by what it keeps in every way."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: deque[int] = deque(maxlen=3)
        self.average: Any = np.float32(0)
        self.begun = 0
        self.sums: Any = [np.zeros(2), {"weights": np.zeros(3)}]

    def _scale(self, factor: float) -> None:
        rate = self.model.optimizer.learning_rate
        rate.assign(rate * factor)

    def on_train_begin(self, logs: Any = None) -> None:
        """Once in a training, and not once in each of its attempts."""
        self._scale(0.5)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Once in an epoch, and not again where it goes on."""
        self.begun += 1
        self._scale(0.9)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """It changes the weights too."""
        self.seen.append(batch + self.begun)
        share = 1 - 0.001 * sum(self.seen)
        self.model.set_weights([share * one for one in self.model.get_weights()])

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Arrays that change in their place, and a number of NumPy's with its own precision."""
        self.average = self.average * np.float32(0.9) + np.float32(logs["loss"])
        self.sums[0] += self.average
        self.sums[1]["weights"] = self.sums[1]["weights"] * 0.5 + self.sums[0][0]
        self._scale(1 / (1 + 0.01 * float(self.sums[1]["weights"][0])))


def halves() -> Any:
    """Keras' own, by the rate of before: it may halve it once in each epoch."""
    return tf.keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5)


def with_callbacks(*make: Callable[[], Any]) -> Callable[[], Workload]:
    """The linear model with these, made again for each training."""
    return lambda: dataclasses.replace(momentum(), callbacks=lambda: [one() for one in make])


def lowers() -> Any:
    """It lowers the rate after each second epoch, since no loss is better by a million."""
    return tf.keras.callbacks.ReduceLROnPlateau(
        "loss", patience=2, factor=0.5, min_delta=1e6, min_lr=0.0
    )


def stops() -> Any:
    """It stops after the fourth epoch, and takes the weights of the first: the largest loss."""
    return tf.keras.callbacks.EarlyStopping(
        "loss", patience=3, mode="max", restore_best_weights=True
    )


@pytest.mark.parametrize(
    ("trained", "epochs", "stop_after"),
    [
        (with_callbacks(lowers), EPOCHS, STEPS + 2),
        (with_callbacks(stops), 4, 3 * STEPS),
        (with_callbacks(lowers, Restless, stops), 4, 2 * STEPS + 1),
        (with_callbacks(Restless, halves), EPOCHS, STEPS + 2),
        (with_callbacks(Restless), EPOCHS, 2 * STEPS),
    ],
    ids=["rate", "stop", "all", "within", "between"],
)
def test_it_ends_as_the_unbroken_one(
    tmp_path: Path, trained: Callable[[], Workload], epochs: int, stop_after: int
) -> None:
    """To the last bit, and after as many epochs."""
    changes: dict[str, Any] = {"trained": trained, "epochs": EPOCHS, "checkpoint_steps": 1}
    whole, weights = train_serial(tmp_path / "whole", **changes)
    assert len(whole.epochs) == epochs

    train_serial(tmp_path / "run", stop_after=stop_after, **changes)
    resumed, again = train_serial(tmp_path / "run", resume_from=AUTO, **changes)

    done = checkpoint.read(tmp_path / "run" / checkpoint.NEWEST)[1].epochs_done
    assert done == epochs
    assert resumed.epochs[-1].train["loss"] == whole.epochs[-1].train["loss"]
    np.testing.assert_equal(weights, again)


def test_what_begins_again_is_said(tmp_path: Path, records: list[RecordInProgress]) -> None:
    """The script has other callbacks now than when the checkpoint was written."""
    train_serial(tmp_path, trained=with_callbacks(lowers), epochs=3, stop_after=STEPS + 1)

    train_serial(tmp_path, trained=with_callbacks(lowers, stops), epochs=3, resume_from=AUTO)

    (warning,) = records[-1].warnings
    assert warning.startswith(
        "EarlyStopping, ReduceLROnPlateau began again from nothing at the restart"
    )


class Averages(tf.keras.callbacks.Callback):
    """It keeps what no checkpoint holds: variables."""

    def __init__(self) -> None:
        super().__init__()
        self.averages = [tf.Variable(0.0)]
        self.loss, self.log = min, tf.data.Dataset.range(3)  # neither is learned


def test_what_no_checkpoint_holds_is_named() -> None:
    """Functions and data need no word."""
    model = momentum().model()
    model.compile("sgd")
    learned = Learned([Averages(), lowers()], model)
    learned.begin()

    assert learned.state(stops=False).left_out == ["Averages.averages"]


def test_many_arrays_keep_their_order() -> None:
    """More than 10,000, by number and not by name."""
    model, one = momentum().model(), Restless()
    model.compile("sgd")
    learned = Learned([one], model)
    learned.begin()
    one.sums = [np.array(number) for number in range(10_050)]
    kept = CallbackState.from_arrays(learned.state(stops=True).to_arrays())
    assert kept is not None
    one.sums = []

    learned.restore(kept)

    assert one.sums == list(range(10_050))
    assert kept.stops


def state_text(**changes: Any) -> str:
    """A state of one callback, with something else."""
    whole = {"kinds": ["A"], "changed": [{}], "rates": [], "stops": False, "left_out": []}
    return json.dumps({**whole, **changes})


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        state_text(changed=[{"best": {"array": 3}}]),
        state_text(changed=[{"best": {"object": 3}}]),
        state_text(changed=[[["best", 1]]]),
        state_text(kinds=["A", "B"]),
        state_text(rates=["fast"]),
        state_text(left_out=[1]),
    ],
)
def test_a_damaged_state_is_a_damaged_checkpoint(tmp_path: Path, text: str) -> None:
    """It is refused before anything is restored."""
    train_serial(tmp_path, trained=with_callbacks(lowers), epochs=1)
    file = tmp_path / checkpoint.NEWEST
    arrays, _ = checkpoint.read(file)
    checkpoint.write_arrays(file, {**arrays, **CallbackState(text).to_arrays()})

    with pytest.raises(RefusalError, match="must name a checkpoint of Ringside"):
        checkpoint.read(file)
