"""Learning-rate rule, replica comparison and checkpoints, against what they should be by hand."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends import make_backend
from ringside_core.keras import tf
from ringside_core.specs import (
    LearningRateRule,
    RecordInProgress,
    RefusalError,
    RunSpec,
    Surroundings,
    Topology,
)
from ringside_core.workloads.pipeline import make_pipeline
from ringside_core.workloads.workload import Workload
from tests.contract.linear import linear
from trainers.build import apply_rule, build
from trainers.checkpoint import Position, read, restore, snapshot, write
from trainers.driver import DivergedError
from trainers.evaluate import Evaluation
from trainers.fit import fit
from trainers.prepare import prepare
from trainers.sync_proof import ReplicasDifferError, check_replicas_equal
from trainers.totals import BegunEpoch, Totals

STEPS = 4


def serial_spec(**changes: Any) -> RunSpec:
    """A small run of the serial backend."""
    fields = {
        "workload": "tests.contract.linear:linear",
        "backend": "serial",
        "options": {},
        "topology": Topology(),
        "global_batch": 6,
        "epochs": 2,
    }
    return RunSpec(**{**fields, **changes})


@pytest.mark.parametrize(
    ("rule", "after"), [("none", 0.1), ("linear", 0.1 * 6 / 24), ("sqrt", 0.1 * (6 / 24) ** 0.5)]
)
def test_the_rate_follows_the_global_batch(rule: str, after: float) -> None:
    """Without warm-up at once; with it on a straight line from the base rate."""
    workload = linear()
    object.__setattr__(workload, "reference_batch", 24)
    for warmup in (0, 2) if rule != "none" else (0,):
        optimizer = tf.keras.optimizers.SGD(0.1)
        spec = serial_spec(learning_rate_rule=LearningRateRule(rule=rule, warmup_epochs=warmup))

        apply_rule(optimizer, spec, workload, STEPS)

        rates = []
        for step in (0, STEPS, 2 * STEPS, 3 * STEPS):
            optimizer.iterations.assign(step)
            schedule = optimizer._learning_rate
            rates.append(float(schedule(step) if callable(schedule) else schedule))
        straight = [0.1 + (after - 0.1) * part for part in (0, 0.5, 1, 1)]
        assert rates == pytest.approx(straight if warmup else [after] * 4)


def test_a_rule_needs_a_reference_and_a_constant_rate() -> None:
    """Both lacks are refused with what to do."""
    spec = serial_spec(learning_rate_rule=LearningRateRule(rule="linear"))
    workload = linear()
    object.__setattr__(workload, "reference_batch", None)
    with pytest.raises(RefusalError, match="reference_batch"):
        apply_rule(tf.keras.optimizers.SGD(0.1), spec, workload, STEPS)

    object.__setattr__(workload, "reference_batch", 6)
    decay = tf.keras.optimizers.schedules.CosineDecay(0.1, 10)
    with pytest.raises(RefusalError, match="CosineDecay"):
        apply_rule(tf.keras.optimizers.SGD(decay), spec, workload, STEPS)


def test_legacy_optimizers_follow_the_rule_too() -> None:
    """tf.keras.optimizers.legacy keeps its rate elsewhere; a schedule is refused there as well."""
    workload = linear()
    object.__setattr__(workload, "reference_batch", 3)
    spec = serial_spec(learning_rate_rule=LearningRateRule(rule="linear"))
    optimizer = tf.keras.optimizers.legacy.SGD(0.1)

    apply_rule(optimizer, spec, workload, STEPS)

    assert float(optimizer.learning_rate) == pytest.approx(0.2)
    decay = tf.keras.optimizers.schedules.CosineDecay(0.1, 10)
    with pytest.raises(RefusalError, match="CosineDecay"):
        apply_rule(tf.keras.optimizers.legacy.SGD(decay), spec, workload, STEPS)


class TwoReplicas:
    """Stands for a started backend whose second replica is `shift` away from the first."""

    def __init__(self, shift: float) -> None:
        self._shift = shift

    def local_values(self, variable: Any) -> list[np.ndarray]:
        return [variable.numpy(), variable.numpy() + self._shift]

    def broadcast(self, value: np.ndarray) -> np.ndarray:
        return value

    def all_reduce(self, value: np.ndarray, reduction: str) -> np.ndarray:
        return value


@pytest.mark.parametrize(
    ("shift", "error", "words"),
    [
        (1e-3, ReplicasDifferError, "gradients were not reduced"),
        (-0.5, ReplicasDifferError, "gradients were not reduced"),
        (float("nan"), DivergedError, "no longer numbers"),
    ],
)
def test_replicas_that_part_are_found(shift: float, error: type[Exception], words: str) -> None:
    """Weights that differ by a fraction of what they have moved fail, and so does NaN."""
    model = linear().build_model()
    initial = [v.numpy() + 0.01 for v in model.trainable_variables]

    with pytest.raises(error, match=words):
        check_replicas_equal(model, TwoReplicas(shift), initial)  # type: ignore[arg-type]
    check_replicas_equal(model, TwoReplicas(0.0), initial)  # type: ignore[arg-type]


def train_serial(
    run_dir: Path, workload: Workload | None = None, **changes: Any
) -> RecordInProgress:
    """Train in this process."""
    record = RecordInProgress.begun(serial_spec(**changes))
    with make_backend(record.spec, Surroundings()) as backend:
        fit(prepare(record, workload or linear(), backend, run_dir=run_dir))
    return record


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
    workload = dataclasses.replace(linear(), **changes)

    with pytest.raises(RefusalError, match=f"must change a weight.*Received: {received}"):
        train_serial(tmp_path, workload)


def test_a_resumed_training_ends_where_an_unbroken_one_does(tmp_path: Path) -> None:
    """One epoch, a checkpoint, another epoch: the same bytes as two epochs in one go."""
    (tmp_path / "first").mkdir()
    whole = train_serial(tmp_path, epochs=2, save="record")
    train_serial(tmp_path / "first", epochs=1)

    resumed = train_serial(
        tmp_path, epochs=2, save="record", resume_from=str(tmp_path / "first" / "checkpoint.npz")
    )

    assert len(resumed.epochs) == 1
    assert resumed.final_digest == whole.final_digest


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    """Shapes are compared before anything is changed."""
    model = linear().build_model()
    model.compile(tf.keras.optimizers.Adam(), "mse")
    model.optimizer.build(model.trainable_variables)
    write(tmp_path / "c.npz", snapshot(model), Position(1))
    other = linear().build_model()
    other.compile(tf.keras.optimizers.SGD(), "mse")

    spec = serial_spec()
    with (
        make_backend(spec, Surroundings()) as backend,
        pytest.raises(RefusalError, match="same model and optimizer"),
    ):
        restore(tmp_path / "c.npz", other, backend)
    with (
        make_backend(spec, Surroundings()) as backend,
        pytest.raises(RefusalError, match="must name a checkpoint"),
    ):
        restore(tmp_path / "nowhere.npz", other, backend)


def compiled(optimizer: Any, precision: str = "float32") -> Any:
    """The linear model, with the state of its optimizer."""
    tf.keras.backend.clear_session()
    tf.keras.backend.set_floatx(precision)
    model = linear().build_model()
    model.compile(optimizer(), "mse")
    model.optimizer.build(model.trainable_variables)
    tf.keras.backend.set_floatx("float32")
    return model


def momentum() -> Any:
    """Its state has the shapes of that of RMSprop."""
    return tf.keras.optimizers.SGD(momentum=0.9)


@pytest.mark.parametrize(
    ("optimizer", "precision", "words"),
    [
        (tf.keras.optimizers.RMSprop, "float32", "optimizer SGD, here RMSprop"),
        (momentum, "float64", "float32, here float64"),
    ],
)
def test_a_checkpoint_of_another_optimizer_is_refused(
    tmp_path: Path, optimizer: Any, precision: str, words: str
) -> None:
    """Where all shapes agree; an older file, which does not say whose it is, is taken."""
    arrays = snapshot(compiled(momentum))
    older = {n: a for n, a in arrays.items() if n not in ("optimizer", "optimizer variables")}
    write(tmp_path / "new.npz", arrays, Position(1))
    write(tmp_path / "old.npz", older, Position(1))
    other = compiled(optimizer, precision)

    with make_backend(serial_spec(), Surroundings()) as backend:
        with pytest.raises(RefusalError, match=words):
            restore(tmp_path / "new.npz", other, backend)
        assert restore(tmp_path / "old.npz", other, backend).epochs_done == 1


def test_variables_are_known_without_the_name_of_the_optimizer(tmp_path: Path) -> None:
    """`fit` names them after it, `build` does not, and Horovod calls it otherwise."""
    model = compiled(momentum)
    tf.keras.backend.clear_session()
    fitted = linear().build_model()
    fitted.compile(tf.keras.optimizers.SGD(momentum=0.9, name="DistributedSGD"), "mse")
    fitted.fit(np.ones((2, 3)), np.ones((2, 1)), verbose=0)
    assert any(v.name.startswith("DistributedSGD/m/") for v in fitted.optimizer.variables)
    write(tmp_path / "c.npz", snapshot(fitted), Position(1))

    with make_backend(serial_spec(), Surroundings()) as backend:
        restore(tmp_path / "c.npz", model, backend)

    for one, other in zip(model.optimizer.variables, fitted.optimizer.variables, strict=True):
        np.testing.assert_array_equal(one, other)


def one_differs(value: np.ndarray, reduction: str = "sum") -> np.ndarray:
    """All-reduce, where some other process has found a difference."""
    return np.ones_like(value) if reduction == "max" else value


@pytest.mark.parametrize("place", ["here", "elsewhere"])
def test_processes_resume_from_one_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Whether this process has the other file or a third one has: nothing is put in."""
    model = compiled(momentum)
    write(tmp_path / "c.npz", snapshot(model), Position(1))
    other = compiled(momentum)
    other.set_weights([weight + 1 for weight in other.get_weights()])
    before = other.get_weights()

    with make_backend(serial_spec(), Surroundings()) as backend:
        if place == "here":
            monkeypatch.setattr(backend, "broadcast", lambda value: value + 1)
        else:
            monkeypatch.setattr(backend, "all_reduce", one_differs)
        with pytest.raises(RefusalError, match="must resume from the same checkpoint"):
            restore(tmp_path / "c.npz", other, backend)

    for one, same in zip(other.get_weights(), before, strict=True):
        np.testing.assert_array_equal(one, same)


def test_who_cannot_read_a_checkpoint_tells_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait in an all-reduce, and would do so for ever."""
    asked = []

    def all_reduce(value: np.ndarray, reduction: str = "sum") -> np.ndarray:
        asked.append(reduction)
        return value

    with make_backend(serial_spec(), Surroundings()) as backend:
        monkeypatch.setattr(backend, "all_reduce", all_reduce)
        with pytest.raises(RefusalError, match="must name a checkpoint"):
            restore(tmp_path / "nowhere.npz", compiled(momentum), backend)

    assert asked == ["sum", "max"]  # the broadcast, and what came of it


def test_other_metrics_are_refused_when_an_epoch_goes_on() -> None:
    """At its beginning, before a step is made."""
    spec, workload = serial_spec(), linear()
    with make_backend(spec, Surroundings()) as backend:
        model = build(spec, workload, backend, STEPS)
        Evaluation(
            model,
            workload,
            backend,
            make_pipeline(spec, workload, backend.capabilities, training=False),
        )
        totals = Totals(model, backend)
        right = (np.zeros(()), np.zeros(()), np.zeros(4, np.int64), np.zeros(()))

        totals.begin(BegunEpoch(1, "{}", right, None))
        with pytest.raises(RefusalError, match="with the metrics that it began with"):
            totals.begin(BegunEpoch(1, "{}", right[1:], None))


def test_a_begun_epoch_without_its_order_is_refused(tmp_path: Path) -> None:
    """The ledger of earlier versions did not know it."""
    model = linear().build_model()
    model.compile(tf.keras.optimizers.SGD(), "mse")
    model.optimizer.build(model.trainable_variables)
    begun = BegunEpoch(1, "{}", (np.zeros(3, np.int64), np.zeros(())), None)
    write(tmp_path / "old.npz", snapshot(model), Position(1, begun))

    with pytest.raises(RefusalError, match="by an earlier version of Ringside"):
        read(tmp_path / "old.npz")


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    """Cut off, a bare array, without its position, or no zip at all: one message for all."""
    model = linear().build_model()
    model.compile(tf.keras.optimizers.SGD(), "mse")
    model.optimizer.build(model.trainable_variables)
    write(tmp_path / "whole.npz", snapshot(model), Position(1))
    whole = (tmp_path / "whole.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.npz").touch()
    np.save(tmp_path / "array.npy", np.zeros(3))
    np.savez(tmp_path / "no-position.npz", **snapshot(model))
    np.savez(tmp_path / "odd-position.npz", **snapshot(model), epochs_done=np.zeros(2))

    begun = BegunEpoch(1, "{}", (np.zeros(3), np.zeros(())), None)
    for name, damaged in {
        "no-json.npz": dataclasses.replace(begun, feed="{"),
        "no-dict.npz": dataclasses.replace(begun, feed="[]"),
        "no-ledger.npz": dataclasses.replace(begun, totals=begun.totals[1:]),
        "odd-ledger.npz": dataclasses.replace(begun, totals=(np.zeros(2), *begun.totals)[::2]),
    }.items():
        write(tmp_path / name, snapshot(model), Position(0, damaged))

    names = [path.name for path in tmp_path.iterdir() if path.name != "whole.npz"]
    assert len(names) == 9
    with make_backend(serial_spec(), Surroundings()) as backend:
        for name in names:
            with pytest.raises(RefusalError, match="must name a checkpoint"):
                restore(tmp_path / name, model, backend)
        assert restore(tmp_path / "whole.npz", model, backend).epochs_done == 1


@pytest.mark.parametrize("coupled", [True, False])
def test_a_model_that_sees_the_filling_of_a_batch_is_told(tmp_path: Path, coupled: bool) -> None:
    """20 examples in batches of 6: the last two are fed with four others."""

    def less_the_mean(x: Any) -> Any:
        return x - tf.reduce_mean(x, axis=0)

    def model() -> Any:
        before = [tf.keras.layers.Lambda(less_the_mean)] if coupled else []
        return tf.keras.Sequential([*before, *linear().build_model().layers])

    record = train_serial(tmp_path, dataclasses.replace(linear(), model=model), epochs=1)

    warned = [one for one in record.warnings if "depends on the others of its batch" in one]
    assert len(warned) == coupled
    assert all("A last batch of 1 or 2 examples" in one for one in warned)


def test_a_model_that_keras_cannot_save_ends_no_run(tmp_path: Path) -> None:
    """Keras 3 refuses a subclassed one without a `get_config`; its weights are there."""

    class Unsaved(tf.keras.Sequential):
        def save(self, *arguments: Any, **named: Any) -> None:
            raise NotImplementedError

    workload = dataclasses.replace(linear(), model=lambda: Unsaved(linear().build_model().layers))

    record = train_serial(tmp_path, workload, epochs=1, save="all")

    assert any("No model.keras was written" in one for one in record.warnings)
    assert (tmp_path / "checkpoint.npz").exists()


def test_gradients_of_several_types_are_summed_type_by_type() -> None:
    """A mirrored strategy packs those of one call into one tensor; the order stays."""
    from ringside_core.keras.legacy_changes import _summed_by_type

    calls = []

    def summed(pairs: list[tuple[Any, str]]) -> list[tuple[Any, str]]:
        calls.append([name for _, name in pairs])
        return [(2 * gradient, name) for gradient, name in pairs]

    wide, narrow = tf.constant([1.0], tf.float64), tf.constant([3.0], tf.float32)
    found = _summed_by_type(summed)([(wide, "a"), (narrow, "b"), (None, "c"), (5 * wide, "d")])

    assert calls == [["a", "d"], ["b"]]
    assert [name for _, name in found] == ["a", "b", "c", "d"]
    assert [None if one is None else float(one[0]) for one, _ in found] == [2.0, 6.0, None, 10.0]
