"""A training driven by the written-out loop: the listeners and the record are those of `fit`."""

import dataclasses
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends import make_backend
from ringside_core.keras import get_weights, tf
from ringside_core.readings.process import cpu_seconds
from ringside_core.specs import EpochRecord, RecordInProgress, Surroundings
from tests.training.momentum import STEPS, momentum, spec_of, train_serial
from trainers.callbacks import calling
from trainers.driver import Listener
from trainers.fit import fit
from trainers.prepare import prepare
from trainers.train import train


class Diary(Listener):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def on_start(self) -> None:
        self.told.append(("start", self.training.updates))

    def on_epoch_begin(self, epoch: int) -> None:
        self.told.append(("epoch begins", epoch))

    def on_step(self, done: int) -> None:
        self.told.append(("step", done))

    def on_fed(self, epoch: int, ids: np.ndarray) -> None:
        self.told.append(("fed", epoch, ids.tolist()))

    def on_phase(self, name: str) -> None:
        self.told.append(("phase", name))

    def on_epoch_end(self, epoch: int, record: EpochRecord) -> None:
        self.told.append(("epoch ends", epoch, record.steps, record.train, record.validation))

    def on_end(self) -> None:
        self.told.append(("end",))


def seen_by(record: RecordInProgress, diary: Diary, run_dir: Path) -> dict[str, Any]:
    """What a training left, without its times."""
    files = sorted(path.name for path in run_dir.rglob("*") if path.is_file())
    return {
        "told": diary.told,
        "files": [name for name in files if not name.startswith("events.")],
        "digests": (record.initial_digest, record.final_digest, record.replica_deviation),
        "ledgers": [(e.ledger, e.ledger_here, e.resumed_examples) for e in record.epochs],
        "times": [len(epoch.step_end_s) for epoch in record.epochs],
    }


def test_an_epoch_pays_for_what_comes_before_its_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keras' reset of the metrics and the family's own preparation, between two epochs."""
    spec = spec_of(precision="float32", epochs=3)
    record = RecordInProgress.begun(spec)
    with make_backend(spec, Surroundings()) as backend:
        driver = prepare(record, momentum(), backend, run_dir=tmp_path)
        reset = driver.training.model.reset_metrics

        def slow_reset() -> None:
            time.sleep(0.05)
            reset()

        monkeypatch.setattr(driver.training.model, "reset_metrics", slow_reset)
        monkeypatch.setattr(backend, "begin_epoch", lambda: time.sleep(0.02))
        fit(driver)

    # Sleeps are never shorter than they are asked to be.
    assert all((epoch.beside_s or 0) >= 0.07 for epoch in record.epochs[1:])


@pytest.mark.parametrize("resumed", [False, True])
def test_listeners_are_told_the_same_by_the_loop(resumed: bool, tmp_path: Path) -> None:
    """Two epochs from the start; or what is left of three, from within the first."""
    changes: dict[str, Any] = {"precision": "float32", "checkpoint_steps": 3}
    if resumed:
        train_serial(tmp_path / "begun", stop_after=4, **changes)
        changes |= {"epochs": 3, "resume_from": str(tmp_path / "begun" / "checkpoint.npz")}
    spec = spec_of(**changes)
    by_fit = RecordInProgress.begun(spec)
    by_loop = RecordInProgress.begun(spec.replace(trained_by="loop"))
    diary, other_diary = Diary(), Diary()

    with make_backend(spec, Surroundings()) as backend:
        train(prepare(by_fit, momentum(), backend, run_dir=tmp_path / "fit", listeners=[diary]))
        train(
            prepare(
                by_loop, momentum(), backend, run_dir=tmp_path / "loop", listeners=[other_diary]
            )
        )

    expected = seen_by(by_fit, diary, tmp_path / "fit")
    assert seen_by(by_loop, other_diary, tmp_path / "loop") == expected
    updates = 2 * STEPS + resumed  # after three of the first four updates, nine are left
    batches = ["evaluating"] * 2  # of 7 examples; each batch is told
    first = ["compiling", "saving", "compiling", *batches, "saving"]
    second = ["training", "saving", "evaluating", *batches, "saving"]
    if resumed:  # an update is left of the first epoch, and no checkpoint within it
        first.remove("saving")
    phases = [told[1] for told in diary.told if told[0] == "phase"]
    # Once more at the end, because steps were told to learn what that costs.
    assert phases == [*first, *second, *(second if resumed else []), "saving"]
    steps = [told[1] for told in diary.told if told[0] == "step"]
    assert steps == list(range(1, updates + 1))
    for record in (by_fit, by_loop):
        assert 0 < record.startup_cpu_s < cpu_seconds()  # type: ignore[operator]
    for epoch in by_loop.epochs:
        assert epoch.step_end_s[-1] <= epoch.train_s


class Stops(tf.keras.callbacks.Callback):
    """Wants to stop after the first step of the second epoch."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.model.stop_training = self.epoch == 1


@pytest.mark.parametrize("trained_by", ["fit", "loop"])
def test_a_callback_stops_a_training_at_the_end_of_an_epoch(
    trained_by: str, tmp_path: Path
) -> None:
    """Where all processes can agree."""
    spec = spec_of(precision="float32", epochs=4, trained_by=trained_by)
    record = RecordInProgress.begun(spec)

    with make_backend(spec, Surroundings()) as backend:
        calls = [calling([Stops()])]
        train(prepare(record, momentum(), backend, run_dir=tmp_path, callbacks=calls))

    assert [epoch.steps for epoch in record.epochs] == [STEPS, STEPS]


def test_moving_averages_become_the_weights_at_the_end(tmp_path: Path) -> None:
    """As Keras does at the end of `fit`; the last step leaves other weights."""

    def left(trained_by: str, *, use_ema: bool) -> list[np.ndarray]:
        rate = tf.keras.optimizers.SGD(0.05, use_ema=use_ema, ema_momentum=0.9)
        workload = dataclasses.replace(momentum(), optimizer=rate)
        spec = spec_of(precision="float32", save="record", trained_by=trained_by)
        with make_backend(spec, Surroundings()) as backend:
            driver = prepare(RecordInProgress.begun(spec), workload, backend, run_dir=tmp_path)
            train(driver)
            return get_weights(driver.training.model)

    by_loop, last = left("loop", use_ema=True), left("loop", use_ema=False)

    for one, other, of_step in zip(by_loop, left("fit", use_ema=True), last, strict=True):
        np.testing.assert_array_equal(one, other)
        assert not np.array_equal(one, of_step)
