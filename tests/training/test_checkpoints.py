"""What a checkpoint never does: hold weights that are no numbers, or cost the one before it."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from backends import make_backend
from backends.base import Backend
from ringside_core.keras import tf
from ringside_core.specs import RecordInProgress, RefusalError, Surroundings
from ringside_core.workloads.workload import Workload
from tests.contract.linear import linear
from tests.small_disk import fill, small_disk
from tests.training.momentum import momentum, spec_of, train_serial
from trainers import checkpoint
from trainers.driver import DivergedError
from trainers.sync_proof import ReplicasDifferError, check_replicas_equal


class AtUpdate(tf.keras.callbacks.Callback):
    """Calls a function with the model after so many updates of the run."""

    def __init__(self, update: int, act: Callable[[Any], None]) -> None:
        super().__init__()
        self._left, self._act = update, act

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._left -= 1
        if not self._left:
            self._act(self.model)


def at_update(update: int, act: Callable[[Any], None]) -> Callable[[], Workload]:
    """The workload, whose model something happens to."""
    return lambda: dataclasses.replace(momentum(), callbacks=[AtUpdate(update, act)])


def lose_numbers(model: Any) -> None:
    """As an overflow does."""
    first, *others = model.get_weights()
    model.set_weights([first * np.nan, *others])


@pytest.mark.parametrize(("update", "every"), [(5, 2), (8, None)])
def test_weights_that_are_no_numbers_are_never_saved(
    update: int, every: int | None, tmp_path: Path
) -> None:
    """The checkpoint of before stays, and the training says that it has diverged.

    Without validation nothing else would notice: the loss is that of the weights before.
    """

    def trained() -> Workload:
        return dataclasses.replace(at_update(update, lose_numbers)(), validation=None)

    with pytest.raises(DivergedError, match="weights are no longer numbers"):
        train_serial(tmp_path, trained=trained, checkpoint_steps=every)

    arrays, position = checkpoint.read(tmp_path / "checkpoint.npz")
    assert all(np.isfinite(value).all() for value in checkpoint.values_in(arrays))
    assert (position.epochs_done, position.begun) == (1, None)


@pytest.fixture(name="small")
def small_(tmp_path: Path) -> Iterator[Path]:
    """A run's folder on a small disk."""
    with small_disk(tmp_path / "small", "4m") as folder:
        yield folder


def test_a_checkpoint_that_does_not_fit_leaves_the_one_before(
    small: Path, records: list[RecordInProgress]
) -> None:
    """The training goes on to its end, and the record says so."""
    trained = at_update(6, lambda model: fill(small / "full"))

    train_serial(small, trained=trained, epochs=3, stop_after=9)

    assert len(records[0].epochs) == 2
    assert checkpoint.read(small / "checkpoint.npz")[1].epochs_done == 1
    (warning,) = records[0].warnings
    assert warning == (
        "No checkpoint could be written after epoch 2: [Errno 28] No space left on device: "
        f"'{small}/checkpoint.npz'. The one before it is kept."
    )


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ([[1.0, 2.0], [1.0, np.nan]], DivergedError),
        ([[np.inf, 2.0], [1.0, 2.0]], DivergedError),
        ([[1.0, 2.0], [1.0, 2.5]], ReplicasDifferError),
    ],
)
def test_values_that_are_no_numbers_are_reported_before_a_difference(
    values: list[list[float]], error: type[Exception]
) -> None:
    """A replica that has diverged alone differs too; that gradients were not reduced is wrong."""

    class Fake:
        """Two replicas in one process; NaN is nothing to its maximum, as in some libraries."""

        def local_values(self, variable: Any) -> list[np.ndarray]:
            return [np.array(value) for value in values]

        def broadcast(self, value: Any) -> Any:
            return value

        def all_reduce(self, value: Any, reduction: str) -> Any:
            return np.nan_to_num(value, nan=0.0)

    model = tf.keras.Model()
    model.kernel = tf.Variable([1.0, 2.0], name="kernel")

    with pytest.raises(error):
        check_replicas_equal(model, cast(Backend, Fake()), [np.zeros(2)])


def compiled(optimizer: Any, precision: str = "float32") -> Any:
    """The linear model, with the state of its optimizer."""
    tf.keras.backend.clear_session()
    tf.keras.backend.set_floatx(precision)
    model = linear().model()
    model.compile(optimizer(), "mse")
    model.optimizer.build(model.trainable_variables)
    tf.keras.backend.set_floatx("float32")
    return model


def with_momentum() -> Any:
    """Its state has the shapes of that of RMSprop."""
    return tf.keras.optimizers.SGD(momentum=0.9)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    """Shapes are compared before anything is changed."""
    arrays = checkpoint.snapshot(compiled(tf.keras.optimizers.Adam))
    checkpoint.write(tmp_path / "c.npz", arrays, checkpoint.Position(1))
    other = compiled(tf.keras.optimizers.SGD)

    with (
        make_backend(spec_of(), Surroundings()) as backend,
        pytest.raises(RefusalError, match="same model and optimizer"),
    ):
        checkpoint.restore(tmp_path / "c.npz", other, backend)


@pytest.mark.parametrize(
    ("optimizer", "precision", "words"),
    [
        (tf.keras.optimizers.RMSprop, "float32", "optimizer SGD, here RMSprop"),
        (with_momentum, "float64", "float32, here float64"),
    ],
)
def test_a_checkpoint_of_another_optimizer_is_refused(
    tmp_path: Path, optimizer: Any, precision: str, words: str
) -> None:
    """Where all shapes agree; an older file, which does not say whose it is, is taken."""
    arrays = checkpoint.snapshot(compiled(with_momentum))
    older = {n: a for n, a in arrays.items() if n not in ("optimizer", "optimizer variables")}
    checkpoint.write(tmp_path / "new.npz", arrays, checkpoint.Position(1))
    checkpoint.write(tmp_path / "old.npz", older, checkpoint.Position(1))
    other = compiled(optimizer, precision)

    with make_backend(spec_of(), Surroundings()) as backend:
        with pytest.raises(RefusalError, match=words):
            checkpoint.restore(tmp_path / "new.npz", other, backend)
        assert checkpoint.restore(tmp_path / "old.npz", other, backend).epochs_done == 1


def one_differs(value: np.ndarray, reduction: str = "sum") -> np.ndarray:
    """All-reduce, where some other process has found a difference."""
    return np.ones_like(value) if reduction == "max" else value


@pytest.mark.parametrize("place", ["here", "elsewhere"])
def test_processes_resume_from_one_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Whether this process has the other file or a third one has: nothing is put in."""
    model = compiled(with_momentum)
    checkpoint.write(tmp_path / "c.npz", checkpoint.snapshot(model), checkpoint.Position(1))
    other = compiled(with_momentum)
    other.set_weights([weight + 1 for weight in other.get_weights()])
    before = other.get_weights()

    with make_backend(spec_of(), Surroundings()) as backend:
        if place == "here":
            monkeypatch.setattr(backend, "broadcast", lambda value: value + 1)
        else:
            monkeypatch.setattr(backend, "all_reduce", one_differs)
        with pytest.raises(RefusalError, match="must resume from the same checkpoint"):
            checkpoint.restore(tmp_path / "c.npz", other, backend)

    np.testing.assert_equal(other.get_weights(), before)


def test_who_cannot_read_a_checkpoint_tells_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait in an all-reduce, and would do so for ever."""
    asked = []

    def all_reduce(value: np.ndarray, reduction: str = "sum") -> np.ndarray:
        asked.append(reduction)
        return value

    with make_backend(spec_of(), Surroundings()) as backend:
        monkeypatch.setattr(backend, "all_reduce", all_reduce)
        with pytest.raises(RefusalError, match="must name a checkpoint"):
            checkpoint.restore(tmp_path / "nowhere.npz", compiled(with_momentum), backend)

    assert asked == ["sum", "max"]  # the broadcast, and what came of it
