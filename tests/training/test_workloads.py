"""Ready workloads, and what a user's own may do wrong."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringside_core.keras import tf
from ringside_core.specs import RefusalError
from ringside_core.workloads import source
from ringside_core.workloads.registry import load_workload
from ringside_core.workloads.source import StreamSource
from ringside_core.workloads.workload import Workload

ROOT = Path(__file__).resolve().parents[2]
HEAD = """
import numpy as np
from ringside import Workload, tf

DATA = (np.zeros((4, 1), np.float32), np.zeros((4, 1), np.float32))

def dense():
    return tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,))])

def make(model=dense, train=DATA):
    return Workload(name="own", model=model, train=train, validation=DATA, loss="mse",
                    optimizer=tf.keras.optimizers.SGD)
"""


def test_digits_are_the_real_ones_in_several_files(tmp_path: Path) -> None:
    """1,437 + 360 examples in TFRecord shards hold scikit-learn's images, each once."""
    from sklearn.datasets import load_digits

    workload = load_workload("digits", options={}, data_dir=str(tmp_path))

    assert isinstance(workload.train, StreamSource)
    assert len(workload.train.parts) == 4
    arrays = [source.in_memory.arrays for source in (workload.train, workload.validation)]
    images = np.concatenate([a[0] for a in arrays]).reshape(-1, 64)
    labels = np.concatenate([a[1] for a in arrays])
    assert (len(arrays[0][1]), len(arrays[1][1])) == (1437, 360)
    original, original_labels = load_digits(return_X_y=True)
    ours = sorted(zip(map(tuple, images.tolist()), labels.tolist(), strict=True))
    theirs = sorted(
        zip(map(tuple, original.astype(int).tolist()), original_labels.tolist(), strict=True)
    )
    assert ours == theirs


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
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # nobody listens: as without a network
    with pytest.raises(RefusalError) as refused:
        load_workload("mnist", options={}, data_dir=str(tmp_path))

    assert "tfds.builder('mnist'" in str(refused.value)
    assert str(tmp_path / "mnist") in str(refused.value)


@pytest.mark.parametrize("model", ["cnn", "mobilenet_v2"])
def test_synthetic_models_have_the_asked_shape(model: str) -> None:
    """Image size and classes are those of the options."""
    workload = load_workload(
        "synthetic", options={"model": model, "image_size": 32, "classes": 7}, data_dir=None
    )

    built = workload.build_model()

    assert built.input_shape == (None, 32, 32, 3)
    assert built.output_shape == (None, 7)


@pytest.mark.parametrize("floatx", ["float32", "float64"])
def test_the_input_of_synthetic_only_copies_finished_images(floatx: str) -> None:
    """Nothing is computed for a batch; the images are those of the seed, scaled to 0…1."""
    images = np.random.default_rng(2).integers(0, 256, (16, 8, 8, 3), dtype=np.uint8)
    tf.keras.backend.set_floatx(floatx)
    workload = load_workload("synthetic", options={"image_size": 8}, data_dir=None)
    assert workload.preprocess is not None
    numbers, labels = (array[30:36] for array in workload.train.arrays)
    traced = tf.function(workload.preprocess).get_concrete_function(
        *(tf.TensorSpec([6], tf.int64) for _ in range(2))
    )
    x, y = workload.preprocess(numbers, labels)

    kinds = {operation.type for operation in traced.graph.get_operations()}
    assert kinds == {"Placeholder", "Const", "GatherV2", "Identity"}
    wanted = images[np.arange(30, 36) % 16].astype(floatx) / np.dtype(floatx).type(255)
    np.testing.assert_array_equal(x, wanted, strict=True)
    np.testing.assert_array_equal(y, labels)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "resnet"}, "resnet50"),
        ({"image_size": 0}, "at least 1"),
        ({"wide": 3}, "Did you mean 'width'"),
    ],
)
def test_wrong_options_of_a_workload_are_refused(options: dict[str, object], words: str) -> None:
    """With the nearest name."""
    with pytest.raises(RefusalError, match=words):
        load_workload("synthetic", options=options, data_dir=None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("import nosuchmodule\ndef own(): return make()", r"nosuchmodule.*own\.py"),
        ("def own(): return 3", "must return a ringside.Workload"),
        ("def own(): return make(train=(np.zeros((0, 1)), np.zeros(0)))", "at least one example"),
        ("def own(): return make(train=tf.data.Dataset.counter())", "must end"),
        ("def other(): return make()", "function in"),
        ("def own(: pass", "line"),
    ],
)
def test_a_users_mistake_is_named(tmp_path: Path, body: str, words: str) -> None:
    """Import errors, a wrong return value, empty or endless data."""
    (tmp_path / "own.py").write_text(HEAD + body)

    with pytest.raises(RefusalError, match=words):
        load_workload(f"{tmp_path}/own.py:own", options={}, data_dir=None)


def test_who_counts_long_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A generator without an end looks like a long one."""
    monkeypatch.setattr(source, "TELL_AFTER_S", 0.0)
    elements = tf.data.Dataset.range(3).filter(lambda number: number < 2)

    assert source.as_source(elements, what="training data").num_examples == 2
    assert "still counting the training data: 2 elements" in capsys.readouterr().err


def test_a_workload_may_stand_in_the_place_of_its_function(tmp_path: Path) -> None:
    """It has no options."""
    (tmp_path / "own.py").write_text(HEAD + "own = make()")
    name = f"{tmp_path}/own.py:own"

    assert isinstance(load_workload(name, options={}, data_dir=None), Workload)
    with pytest.raises(RefusalError, match="option of the workload"):
        load_workload(name, options={"wide": 3}, data_dir=None)


def test_a_model_function_must_return_a_model(tmp_path: Path) -> None:
    """What it returned is told."""
    (tmp_path / "own.py").write_text(HEAD + "def own(): return make(model=lambda: None)")
    workload = load_workload(f"{tmp_path}/own.py:own", options={}, data_dir=None)

    with pytest.raises(
        RefusalError,
        match="must return a model of the Keras that runs: legacy Keras",
    ):
        workload.build_model()


KERAS_3 = """
import keras
import numpy as np
from ringside import Workload

def own():
    return Workload(
        name="own",
        model=lambda: keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]),
        train=(np.ones((4, 1)), np.zeros((4, 1))),
        validation=(np.ones((4, 1)), np.zeros((4, 1))),
        loss="mse",
        optimizer="adam",
    )
"""


@pytest.mark.parametrize("backend", ["serial", "horovod"])
def test_whoever_imports_keras_gets_keras_3(tmp_path: Path, backend: str) -> None:
    """Not legacy Keras under its name; asked for that, it is refused."""
    (tmp_path / "own.py").write_text(KERAS_3)
    flags = ("--workload", f"{tmp_path}/own.py:own", "--run-dir", f"{tmp_path}/run")
    command = [sys.executable, str(ROOT / "train.py"), "--backend", backend, *flags]

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *more], capture_output=True, text=True, timeout=120, check=False
        )

    refused = run("--keras", "2")
    trained = run("--epochs", "1", "--global-batch", "2")

    assert refused.returncode == 2
    assert "own.py:own is for Keras 3" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert trained.returncode == 0, trained.stderr
    record = json.loads((tmp_path / "run" / "records" / "rank-0.json").read_text())
    assert record["spec"]["keras"] == 3
    assert record["epochs"][0]["examples"] == 4


DATA = (np.zeros((4, 3), np.float32), np.zeros((4, 1), np.float32))


def own(model: Any, **changes: Any) -> Workload:
    """A workload of one's own that differs from a plain one in this."""
    fields = {
        "name": "own",
        "model": model,
        "train": DATA,
        "validation": DATA,
        "loss": "mse",
        "optimizer": tf.keras.optimizers.SGD,
    }
    return Workload(**{**fields, **changes})


def one_dense() -> Any:
    """A model of one layer."""
    return tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(3,))])


@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_a_loss_must_be_a_mean_over_the_batch(reduction: str) -> None:
    """Strategies and Horovod would train differently with another reduction; nests are searched."""
    wrong = tf.keras.losses.MeanSquaredError(reduction=reduction)
    right = tf.keras.losses.MeanSquaredError()

    with pytest.raises(RefusalError, match=reduction):
        own(one_dense, loss={"a": "mse", "b": [right, wrong]}).build_model()
    mean = tf.keras.losses.MeanSquaredError(reduction="sum_over_batch_size")
    own(one_dense, loss=[right, mean]).build_model()


def test_an_own_step_may_reduce_its_losses_itself() -> None:
    """As in the captions of keras.io, where padding is masked before the mean is taken."""

    class Masked(tf.keras.Sequential):
        def train_step(self, data: Any) -> Any:
            raise NotImplementedError

    loss = tf.keras.losses.MeanSquaredError(reduction="none")
    own(lambda: Masked([tf.keras.layers.Dense(1, input_shape=(3,))]), loss=loss).build_model()


def test_metrics_need_a_single_output() -> None:
    """Two outputs with a loss of each work, but no metrics of them."""

    def two() -> Any:
        inputs = tf.keras.Input((3,))
        dense = tf.keras.layers.Dense
        return tf.keras.Model(inputs, [dense(1)(inputs), dense(1)(inputs)])

    with pytest.raises(RefusalError, match="several outputs"):
        own(two, loss=["mse", "mse"], metrics=lambda: ["mae"]).build_model()
    assert len(own(two, loss=["mse", "mse"]).build_model().outputs) == 2
