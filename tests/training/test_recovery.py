"""What a restart must not do: go on past an end, lose a whole checkpoint, take another run's."""

import dataclasses
import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringside_core.keras import tf
from ringside_core.specs import AUTO, RecordInProgress, RefusalError
from ringside_core.workloads.workload import Workload
from tests.contract.linear import linear
from tests.training.momentum import momentum, train_serial
from trainers import checkpoint

pytestmark = pytest.mark.usefixtures("warm")


def impatient() -> Workload:
    """It stops after the second epoch: no loss is better by a million."""
    stops = tf.keras.callbacks.EarlyStopping("loss", patience=1, min_delta=1e6)
    return dataclasses.replace(momentum(), callbacks=[stops])


def averaging() -> Workload:
    """The weights at the end are moving averages, which are put in place only there."""
    optimizer = lambda: tf.keras.optimizers.SGD(0.05, use_ema=True, ema_momentum=0.5)  # noqa: E731
    return dataclasses.replace(momentum(), optimizer=optimizer)


@pytest.mark.parametrize(("trained", "epochs"), [(impatient, 5), (averaging, 1), (averaging, 2)])
def test_a_training_that_was_over_only_ends_again(
    tmp_path: Path, records: list[RecordInProgress], trained: Callable[[], Workload], epochs: int
) -> None:
    """Killed after its last checkpoint, before it had exported its model; the one before is gone.

    It may have been stopped early. The weights are those of its end, bit by bit.
    """
    changes: dict[str, Any] = {"trained": trained, "epochs": epochs}
    kept, weights = train_serial(tmp_path, **changes)
    assert len(kept.epochs) == min(epochs, 2)
    (tmp_path / "model.keras").unlink()
    (tmp_path / checkpoint.BEFORE).unlink(missing_ok=True)

    again, restored = train_serial(tmp_path, resume_from=AUTO, **changes)

    assert not again.epochs
    assert (tmp_path / "model.keras").exists()
    np.testing.assert_equal(weights, restored)
    assert [record.warnings for record in records] == [(), ()]


@pytest.mark.parametrize(
    ("layers", "warning"),
    [
        (["Dropout", "BatchNormalization"], "BatchNormalization, Dropout work on each replica's"),
        (["LSTM"], ""),
    ],
)
def test_another_size_is_reported_where_layers_see_a_part_of_a_batch(
    tmp_path: Path, records: list[RecordInProgress], layers: list[str], warning: str
) -> None:
    """The record warns of it; a recurrent layer without dropout draws nothing."""

    def model() -> Any:
        made = {
            "Dropout": tf.keras.layers.Dropout(0.1),
            "BatchNormalization": tf.keras.layers.BatchNormalization(),
            "LSTM": tf.keras.Sequential(
                [tf.keras.layers.Reshape((-1, 1)), tf.keras.layers.LSTM(3)]
            ),
        }
        before = momentum().model().layers
        inputs = tf.keras.Input((3,))
        return tf.keras.Sequential([inputs, *(made[name] for name in layers), *before])

    def trained() -> Workload:
        return dataclasses.replace(momentum(), model=model)

    train_serial(tmp_path, trained=trained, epochs=1)
    file = tmp_path / checkpoint.NEWEST
    arrays = checkpoint.read(file)[0]
    assert arrays["replicas"] == 1
    np.savez(file, **{**arrays, "replicas": np.array(4)})

    train_serial(tmp_path, trained=trained, epochs=2, resume_from=AUTO)

    warned = records[-1].warnings
    assert [warning in one for one in warned] == [True] * bool(warning)
    assert all("Trained with 4 replicas until here, and with 1" in one for one in warned)


def no_space(*arguments: Any, **named: Any) -> None:
    """As a disk without it answers."""
    raise OSError(errno.ENOSPC, "No space left on device")


def test_the_best_checkpoint_is_one_that_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first and the third of three do not fit: neither ends the training, nor is the best."""
    write, done = checkpoint.write, list[int]()

    def sometimes(*arguments: Any, **named: Any) -> None:
        done.append(arguments[2].epochs_done)
        (no_space if done[-1] in (1, 3) else write)(*arguments, **named)

    monkeypatch.setattr(checkpoint, "write", sometimes)

    def unshuffled() -> Workload:
        return dataclasses.replace(momentum(), train=linear().train)

    kept, _ = train_serial(tmp_path, epochs=3, trained=unshuffled)

    losses = [epoch.validation["loss"] for epoch in kept.epochs]
    assert losses == sorted(losses, reverse=True)
    assert done == [1, 2, 3]
    assert checkpoint.read(tmp_path / checkpoint.BEST)[1].epochs_done == 2
    assert checkpoint.best_loss(tmp_path) == losses[1]


def test_a_best_checkpoint_that_does_not_fit_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: list[RecordInProgress]
) -> None:
    """On a disk without links it is a copy."""

    def no_links(*arguments: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    def half(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes()[:100])
        no_space()

    monkeypatch.setattr(Path, "hardlink_to", no_links)
    monkeypatch.setattr(shutil, "copyfile", half)

    train_serial(tmp_path, epochs=1)

    assert checkpoint.read(tmp_path / checkpoint.NEWEST)[1].epochs_done == 1
    assert records[0].warnings == (
        "No best checkpoint could be written after epoch 1: [Errno 28] No space left on device. "
        "The one before it is kept.",
    )
    assert [one.name for one in tmp_path.glob("checkpoint*")] == [checkpoint.NEWEST]
    assert [one.name for one in tmp_path.glob(".*")] == []


def test_a_run_does_not_go_on_from_a_checkpoint_of_another(tmp_path: Path) -> None:
    """At the end of an epoch too; who names the checkpoint may."""
    others: list[tuple[dict[str, Any], str]] = [
        ({"seed": 6}, "seed=6, was 5"),
        ({"global_batch": 12}, "global_batch=12, was 6"),
        ({"workload": "digits"}, "workload=digits, was tests.training.momentum:momentum"),
    ]
    train_serial(tmp_path, epochs=1)

    for changes, words in others:
        with pytest.raises(RefusalError, match=words):
            train_serial(tmp_path, resume_from=AUTO, **changes)
    named = str(tmp_path / checkpoint.NEWEST)
    train_serial(tmp_path / "x", resume_from=named, seed=6)
