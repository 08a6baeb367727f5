"""What a training's listeners hear, what its record says, and how it ends."""

import dataclasses
import time
from pathlib import Path
from typing import Any

import pytest

from backends.base import Backend
from ringside_core.keras import tf
from ringside_core.specs import EpochRecord, RecordInProgress, RefusalError
from ringside_core.workloads.workload import Workload
from tests.contract.linear import data
from tests.training.momentum import STEPS, momentum, train_serial
from trainers.driver import Listener, single_numbers


class Diary(Listener):
    """Notes what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    def on_start(self) -> None:
        self.heard.append(("start", self.training.updates))

    def on_epoch_begin(self, epoch: int) -> None:
        self.heard.append(("epoch begins", epoch))

    def on_step(self, done: int) -> None:
        self.heard.append(("step", done))

    def on_phase(self, name: str) -> None:
        self.heard.append(("phase", name))

    def on_epoch_end(self, epoch: int, record: EpochRecord) -> None:
        self.heard.append(("epoch ends", epoch, record.steps, record.train, record.validation))

    def on_end(self) -> None:
        self.heard.append(("end",))


def test_an_epoch_pays_for_what_comes_before_its_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keras' reset of the metrics and the family's own preparation, between two epochs."""
    reset = tf.keras.Model.reset_metrics

    def slow_reset(model: Any) -> None:
        time.sleep(0.05)
        reset(model)

    monkeypatch.setattr(tf.keras.Model, "reset_metrics", slow_reset)
    monkeypatch.setattr(Backend, "begin_epoch", lambda backend: time.sleep(0.02))

    kept, _ = train_serial(tmp_path, epochs=3, save="record")

    # Sleeps are never shorter than they are asked to be.
    assert all((epoch.beside_s or 0) >= 0.07 for epoch in kept.epochs[1:])


@pytest.mark.parametrize("resumed", [False, True])
def test_listeners_hear_of_all(
    resumed: bool, tmp_path: Path, records: list[RecordInProgress]
) -> None:
    """Two epochs from the start; or what is left of three, from within the first."""
    changes: dict[str, Any] = {"checkpoint_steps": 3}
    if resumed:
        train_serial(tmp_path / "begun", stop_after=4, **changes)
        changes |= {"epochs": 3, "resume_from": str(tmp_path / "begun" / "checkpoint.npz")}
    diary = Diary()

    train_serial(tmp_path, listeners=[diary], **changes)

    updates = 2 * STEPS + resumed  # after three of the first four updates, nine are left
    first = ["compiling", "saving", "evaluating", "saving"]
    second = ["training", "saving", "evaluating", "saving"]
    if resumed:  # an update is left of the first epoch, and no checkpoint within it
        first = ["compiling", "evaluating", "saving"]
    phases = [each[1] for each in diary.heard if each[0] == "phase"]
    assert phases == [*first, *second, *(second if resumed else []), "saving"]
    steps = [each[1] for each in diary.heard if each[0] == "step"]
    assert steps == list(range(1, updates + 1))
    ends = [each[1:3] for each in diary.heard if each[0] == "epoch ends"]
    assert ends == ([(0, 1), (1, 4), (2, 4)] if resumed else [(0, 4), (1, 4)])
    assert (diary.heard[1], diary.heard[-1]) == (("start", updates), ("end",))
    assert 0 < records[-1].startup_cpu_s < time.process_time()  # type: ignore[operator]
    assert all(e.step_end_s[-1] <= e.train_s for e in records[-1].epochs)


class Stops(tf.keras.callbacks.Callback):
    """Wants to stop at the first step of the second epoch."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.model.stop_training = self.epoch == 1


def test_logs_are_kept_as_far_as_they_are_numbers() -> None:
    """A callback may put what it likes into them."""
    logs = {"loss": 1, "hits": tf.constant([2.5]), "phase": "warm-up", "best": None, "all": [1, 2]}
    assert single_numbers(logs) == {"loss": 1.0, "hits": 2.5}


def test_a_callback_stops_a_training_where_keras_does(tmp_path: Path) -> None:
    """After the step in which it asks for it."""
    kept, _ = train_serial(
        tmp_path,
        epochs=4,
        trained=lambda: dataclasses.replace(momentum(), callbacks=lambda: [Stops()]),
    )

    assert [epoch.steps for epoch in kept.epochs] == [STEPS, 1]


@pytest.mark.parametrize(
    ("changes", "received"),
    [
        ({"optimizer": lambda: tf.keras.optimizers.SGD(0.0)}, "a learning rate of 0"),
        ({"optimizer": lambda: tf.keras.optimizers.legacy.SGD(0.0)}, "a learning rate of 0"),
        ({"loss": lambda y, made: 0.0 * (made - y)}, "the same weights as before"),
    ],
)
def test_a_training_that_changes_nothing_is_refused(
    changes: dict[str, Any], received: str, tmp_path: Path
) -> None:
    """A program can be so by mistake; there is nothing to compare."""

    def trained() -> Workload:
        return dataclasses.replace(momentum(), **changes)

    with pytest.raises(RefusalError, match=f"must change a weight.*Received: {received}"):
        train_serial(tmp_path, trained=trained)


@pytest.mark.parametrize("built", [True, False])
def test_a_model_that_keras_cannot_save_ends_no_run(
    tmp_path: Path, records: list[RecordInProgress], built: bool
) -> None:
    """Without a `get_config`, or not built by its function; its weights are there."""

    class Unsaved(tf.keras.Sequential):
        def save(self, *arguments: Any, **named: Any) -> None:
            raise NotImplementedError

    def model() -> Any:
        if built:
            return Unsaved(momentum().model().layers)
        return tf.keras.Sequential([tf.keras.layers.Dense(1)])

    def trained() -> Workload:
        return dataclasses.replace(momentum(), model=model)

    train_serial(tmp_path, trained=trained, epochs=1, save="all")

    assert any("No model.keras was written" in each for each in records[0].warnings)
    assert (tmp_path / "checkpoint.npz").exists()


def test_an_evaluation_by_a_callback_does_not_end_an_epoch(tmp_path: Path) -> None:
    """Its steps are all timed, also where a step has several parts: here two passes."""

    class Evaluates(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 1:
                self.model.evaluate(*data(4, 1), verbose=0)

    def evaluated() -> Workload:
        return dataclasses.replace(momentum(), callbacks=lambda: [Evaluates()])

    kept, _ = train_serial(
        tmp_path, trained=evaluated, gradient_accumulation_steps=2, save="record"
    )

    assert [(epoch.steps, len(epoch.step_end_s)) for epoch in kept.epochs] == 2 * [(STEPS, STEPS)]
