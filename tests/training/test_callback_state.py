"""A training with callbacks that is broken off ends as the one that was not."""

import dataclasses
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
from trainers.callback_state import CallbackState

pytestmark = pytest.mark.usefixtures("warm")
EPOCHS = 6


class Decays(tf.keras.callbacks.Callback):
    """An author's own: it looks back at all losses, and at the weights of two epochs ago."""

    def __init__(self, kept: float = 0.9) -> None:
        super().__init__()
        self.kept = kept
        self.losses: list[float] = []
        self.weights: tuple[Any, ...] = ()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Scale the weights by what it has seen."""
        self.losses.append(logs["loss"])
        self.weights = (*self.weights[-1:], self.model.get_weights())
        if len(self.losses) > 2:
            share = self.losses[-1] / self.losses[0] * self.kept
            mixed = [share * a + (1 - share) * b for a, b in zip(*self.weights, strict=True)]
            self.model.set_weights(mixed)


def with_callbacks(*make: Callable[[], Any]) -> Callable[[], Workload]:
    """The linear model with these, made anew for each training."""
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
        (with_callbacks(Decays), EPOCHS, STEPS + 2),
        (with_callbacks(lowers, Decays, stops), 4, 2 * STEPS + 1),
    ],
    ids=["rate", "stop", "own", "all"],
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
    for one, other in zip(weights, again, strict=True):
        np.testing.assert_array_equal(one, other)


def test_nobody_begins_anew_without_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script has other callbacks now than when the checkpoint was written."""
    records: list[RecordInProgress] = []
    begun = RecordInProgress.begun

    def kept(*arguments: Any, **named: Any) -> RecordInProgress:
        records.append(begun(*arguments, **named))
        return records[-1]

    monkeypatch.setattr(RecordInProgress, "begun", kept)
    train_serial(tmp_path, trained=with_callbacks(lowers), epochs=3, stop_after=STEPS + 1)

    train_serial(tmp_path, trained=with_callbacks(lowers, stops), epochs=3, resume_from=AUTO)

    (warning,) = records[-1].warnings
    assert warning.startswith("EarlyStopping, ReduceLROnPlateau began anew at the restart")


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"kinds": ["A"], "changed": [{"best": {"array": 3}}], "rates": [], "left_out": []}',
        '{"kinds": ["A"], "changed": [{"best": {"object": 3}}], "rates": [], "left_out": []}',
        '{"kinds": ["A"], "changed": [[["best", 1]]], "rates": [], "left_out": []}',
        '{"kinds": ["A", "B"], "changed": [{}], "rates": [], "left_out": []}',
        '{"kinds": [], "changed": [], "rates": [], "left_out": [1]}',
        '{"kinds": [], "changed": [], "rates": ["fast"], "left_out": []}',
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
