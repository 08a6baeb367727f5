"""A workload is the arguments of one fit; ready ones; what `ringside.probe` says."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ringside.script
from backends import make_backend
from launch.task import Reporter, begun
from ringside.probe import fit_of
from ringside.script import run_whole
from ringside_core.keras import tf
from ringside_core.specs import RefusalError, Surroundings
from ringside_core.workloads import registry
from ringside_core.workloads.registry import load_workload
from ringside_core.workloads.workload import Workload
from tests.training.momentum import spec_of

ROWS = np.arange(24.0, dtype=np.float32).reshape(8, 3)
DATA = (ROWS, ROWS[:, :1])


def one_dense() -> Any:
    """A model of one layer."""
    return tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(3,))])


def own(**changes: Any) -> Workload:
    """A workload that differs from a plain one in this."""
    fields = {"name": "own", "model": one_dense, "train": DATA, "loss": "mse", "optimizer": "sgd"}
    return Workload(**{**fields, **changes})


def test_arrays_are_given_by_name() -> None:
    """In batches of the reference, or of Keras' 32."""
    weight = np.ones(8)
    callback = tf.keras.callbacks.TerminateOnNaN()

    found = own(
        train=(*DATA, weight),
        validation=DATA,
        class_weight={0: 1.0, 1: 2.0},
        callbacks=lambda: [callback],
        reference_batch=4,
    ).arguments(epochs=3)

    assert found.pop("x") is DATA[0]
    assert found.pop("y") is DATA[1]
    assert found.pop("sample_weight") is weight
    assert found.pop("validation_data") == DATA
    assert found == {
        "epochs": 3,
        "batch_size": 4,
        "class_weight": {0: 1.0, 1: 2.0},
        "callbacks": [callback],
    }
    alone = own(train=ROWS, validation=ROWS, callbacks=[callback]).arguments(epochs=1)
    assert alone.pop("x") is ROWS
    assert alone.pop("validation_data") is ROWS
    assert alone == {"epochs": 1, "batch_size": 32, "callbacks": [callback]}


class Batches(tf.keras.utils.Sequence):
    """Two batches of four."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return tuple(part[4 * index : 4 * index + 4] for part in DATA)


@pytest.mark.parametrize(
    "make",
    [
        lambda: tf.data.Dataset.from_tensor_slices(DATA).batch(4),
        Batches,
        lambda: (part for part in [DATA]),
    ],
    ids=["data set", "sequence", "generator"],
)
def test_batches_are_the_author_s(make: Callable[[], Any]) -> None:
    """They are x alone, and no batch is asked for."""
    data = make()

    assert own(train=data, reference_batch=4).arguments(epochs=1) == {"epochs": 1, "x": data}


def test_a_model_is_compiled_with_what_the_workload_says() -> None:
    """What functions return, too; a model that its author has compiled stays as it is."""
    compiled = own(
        optimizer=lambda: tf.keras.optimizers.Adam(0.25),
        metrics=lambda: [tf.keras.metrics.MeanAbsoluteError(name="mae")],
        loss_weights=[0.5],
    ).compiled()
    said = compiled.evaluate(*DATA, verbose=0, return_dict=True)
    made = compiled(ROWS).numpy()
    assert float(compiled.optimizer.learning_rate) == 0.25
    assert said["loss"] == pytest.approx(0.5 * np.mean((made - DATA[1]) ** 2), rel=1e-5)
    assert said["mae"] == pytest.approx(np.mean(np.abs(made - DATA[1])), rel=1e-5)

    def model() -> Any:
        made = one_dense()
        made.compile("rmsprop", "mae")
        return made

    assert type(own(model=model, optimizer=None, loss=None).compiled().optimizer).__name__ == (
        "RMSprop"
    )


@pytest.mark.parametrize(
    ("name", "options"), [("digits", {}), ("synthetic", {"image_size": 8, "examples": 100})]
)
def test_a_ready_workload_trains_as_plain_keras_does(
    name: str, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One epoch of its own function, compiled and fitted by hand: the same losses and metrics."""
    spec = spec_of(workload=name, workload_options=options, global_batch=48, epochs=1)
    monkeypatch.setattr(ringside.script, "_session", None)
    tf.keras.backend.set_floatx("float64")
    tf.keras.utils.set_random_seed(spec.seed)
    surroundings = Surroundings()
    record = begun(spec, surroundings)
    with make_backend(spec, surroundings) as backend:
        run_whole(
            record, backend, surroundings, tmp_path, Reporter(tmp_path, "rank-0", aloud=False)
        )
    monkeypatch.setattr(ringside.script, "_session", None)

    tf.keras.utils.set_random_seed(spec.seed)
    workload = load_workload(name, options=options, data_dir=None)
    plain = workload.model()
    plain.compile(workload.optimizer(), workload.loss, workload.metrics())
    data: dict[str, Any] = {"x": workload.train}
    if isinstance(workload.train, tuple):
        data = {"x": workload.train[0], "y": workload.train[1], "batch_size": 48}
    said = plain.fit(**data, validation_data=workload.validation, verbose=0).history

    (epoch,) = record.epochs
    found = {**epoch.train, **{f"val_{key}": value for key, value in epoch.validation.items()}}
    assert found == pytest.approx({key: values[0] for key, values in said.items()}, rel=1e-10)


def test_digits_are_the_real_ones(tmp_path: Path) -> None:
    """1,437 + 360 examples hold scikit-learn's images, each once."""
    from sklearn.datasets import load_digits

    workload = load_workload("digits", options={}, data_dir=str(tmp_path))

    parts = (workload.train, workload.validation)
    images = np.concatenate([part[0] for part in parts]).reshape(-1, 64) * 16
    labels = np.concatenate([part[1] for part in parts])
    assert [len(part[1]) for part in parts] == [1437, 360]
    original, theirs = load_digits(return_X_y=True)
    rows = sorted(zip(map(tuple, images.tolist()), labels.tolist(), strict=True))
    assert rows == sorted(zip(map(tuple, original.tolist()), theirs.tolist(), strict=True))


def test_data_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    """The directory is a file here; root may write everywhere else."""
    blocked = tmp_path / "file"
    blocked.touch()

    with pytest.raises(RefusalError, match="--data-dir"):
        load_workload("digits", options={}, data_dir=str(blocked / "data"))


def test_missing_public_data_say_what_to_fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offline, the message names the data set, the command and the place."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # no server: as without a network
    with pytest.raises(RefusalError) as refused:
        load_workload("mnist", options={}, data_dir=str(tmp_path))

    assert "tfds.builder('mnist'" in str(refused.value)
    assert str(tmp_path / "mnist") in str(refused.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "resnet"}, "resnet50"),
        ({"image_size": 0}, "at least 1"),
        ({"wide": 3}, "Did you mean 'width'"),
    ],
)
def test_wrong_options_of_a_workload_are_refused(options: dict[str, Any], words: str) -> None:
    """With the nearest name."""
    with pytest.raises(RefusalError, match=words):
        load_workload("synthetic", options=options, data_dir=None)


HEAD = """
import numpy as np
import ringside
from ringside import Workload, tf

x = np.zeros((20, 1), np.float32)

def dense():
    return tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,))])

def make(model=dense, train=(x, x), **more):
    return Workload(name="own", model=model, train=train, loss="mse", optimizer="sgd", **more)

"""
SCRIPT = """
with ringside.scope():
    model = dense()
    model.compile("sgd", "mse")
ringside.fit(model, x, x, batch_size=4, epochs=3)
"""


@pytest.fixture(name="file")
def file_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Writes a file of a user's; running it changes where Python looks."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def written(body: str) -> Path:
        path = tmp_path / "own.py"
        path.write_text(HEAD + body)
        return path

    return written


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("import nosuchmodule\ndef own(): return make()", r"nosuchmodule.*own\.py"),
        ("def own(): return 3", "must return a ringside.Workload"),
        ("def other(): return make()", "function in"),
        ("def own(: pass", "line"),
    ],
)
def test_a_users_mistake_is_named(file: Callable[[str], Path], body: str, words: str) -> None:
    """Import errors, a wrong return value, another name."""
    with pytest.raises(RefusalError, match=words):
        load_workload(f"{file(body)}:own", options={}, data_dir=None)


def test_a_workload_may_stand_in_the_place_of_its_function(file: Callable[[str], Path]) -> None:
    """It has no options."""
    name = f"{file('own = make()')}:own"

    assert isinstance(load_workload(name, options={}, data_dir=None), Workload)
    with pytest.raises(RefusalError, match="option of the workload"):
        load_workload(name, options={"wide": 3}, data_dir=None)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("def own(): return make(model=lambda: None)", "ringside.fit takes a Keras model"),
        ("def own(): return make(model=lambda: 1 / 0)", "division by zero"),
    ],
)
def test_a_model_function_must_return_a_model(
    file: Callable[[str], Path], body: str, words: str
) -> None:
    """What it returned, or raised, is said where the program is tried."""
    with pytest.raises(RefusalError, match=words):
        fit_of(f"{file(body)}:own")


@pytest.mark.parametrize(
    ("body", "function", "expected"),
    [
        (SCRIPT, "", {"global_batch": 4, "epochs": 3, "updates": 5}),
        ("def own(n): return make(reference_batch=n)", ":own", {"global_batch": 7, "updates": 3}),
        (
            "def own(): return make(train=tf.data.Dataset.from_tensor_slices((x, x)).batch(6))",
            ":own",
            {"global_batch": 6, "updates": 4},
        ),
    ],
    ids=["script", "option", "data set"],
)
def test_a_program_is_asked_in_a_process_of_its_own(
    file: Callable[[str], Path], body: str, function: str, expected: dict[str, int]
) -> None:
    """The batch and the epochs of its fit; what it uses."""
    options = {"n": 7} if "(n)" in body else {}

    found = registry.fit_asked(f"{file(body)}{function}", options)

    assert {name: found[name] for name in expected} == expected
    used = (found["model"], found["parameters"], found["optimizers"], found["callbacks"])
    assert used == ("Sequential", 2, ["SGD"], [])


def test_a_program_that_is_refused_says_why(file: Callable[[str], Path]) -> None:
    """The process answers with the sentence."""
    path = file(SCRIPT.partition("ringside.fit")[0])

    with pytest.raises(RefusalError, match=r"must call ringside.fit"):
        registry.fit_asked(str(path), {})
