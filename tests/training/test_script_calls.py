"""A script up to its fit: what it asks, and what it is refused."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ringside.script
from backends import make_backend
from ringside.probe import fit_of
from ringside_core.keras import KERAS, get_weights, tf
from ringside_core.seeds import seed_script
from ringside_core.specs import AUTO, RecordInProgress, RefusalError, Surroundings
from ringside_core.workloads.registry import fit_asked
from ringside_core.workloads.script import run
from tests.training.momentum import spec_of
from trainers.fit import train_call
from trainers.fit_call import fit_call
from trainers.step import Steps

BEGIN = """
import sys
import numpy as np
import ringside
from ringside import tf
x, y = np.zeros((20, 3), np.float32), np.zeros((20, 1), np.float32)
"""
BUILD = """
with ringside.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(3,))])
    model.compile("sgd", "mse")
"""
FLAGS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--rate", required=True)
parser.parse_args()
"""
STRATEGY = 'with tf.distribute.OneDeviceStrategy("/cpu:0").scope(), ringside.scope(): 0\n'
FIT = "ringside.fit(model, x, y, batch_size=4, epochs=2)\n"


@pytest.fixture(autouse=True)
def unchanged_search_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Running a user's file changes where Python looks, and the arguments that its model sees."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["pytest", "no number"])


def script(folder: Path, *parts: str, name: str = "mine.py") -> str:
    """A script of these parts."""
    path = folder / name
    path.write_text("".join(parts))
    return str(path)


def rows(count: int) -> np.ndarray:
    """x [count, 2]: different rows."""
    return np.arange(2.0 * count).reshape(count, 2)


def test_a_script_runs_up_to_its_fit(tmp_path: Path) -> None:
    """Its own arguments are its own; what follows the fit is not run. It may run again."""
    registers = (
        "@tf.keras.utils.register_keras_serializable()\nclass Own(tf.keras.layers.Dense):\n  pass\n"
    )
    main = f"if __name__ == '__main__':\n    {FIT}"
    parts = (BEGIN, registers, BUILD, "epochs = int(sys.argv[1])\n", main, "raise SystemExit(5)")
    path = script(tmp_path, *parts)

    for _ in range(2):  # Keras refuses a class that is registered twice
        asked = fit_of(f"{path} 7")
        assert (asked.global_batch, asked.epochs, asked.steps_per_epoch) == (4, 2, 5)


def test_the_seeds_of_a_script_are_its_data_s(tmp_path: Path) -> None:
    """Also below its scope: every process must hold the same examples."""
    data = "y = np.random.random((20, 1))\n"
    path = script(tmp_path, BEGIN, "np.random.seed(3)\n", BUILD, data, FIT)

    for _ in range(2):
        drawn = fit_of(path).arguments["y"]
        np.testing.assert_array_equal(drawn, np.random.RandomState(3).random((20, 1)))


def test_layers_without_a_name_are_called_the_same_again(tmp_path: Path) -> None:
    """Counted on, the second run's would be an author's own: keras.io's recogniser of speech."""
    build = BUILD.replace(
        "[tf.keras", '[tf.keras.layers.Dense(2, name="dense_1"), tf.keras', 1
    ).replace(", input_shape=(3,)", "")
    path = script(tmp_path, BEGIN, build, FIT)

    names = [[one.name for one in fit_of(path).model.layers] for _ in range(3)]

    assert names == [["dense_1", "dense"]] * 3


@pytest.mark.parametrize("seeded", [True, False])
def test_a_scope_seeds_what_its_author_has_not(seeded: bool) -> None:
    """With the seed of the run."""
    from tf_keras.src.backend import _SEED_GENERATOR

    drawn = []
    for seed in (1, 2, 1):
        vars(_SEED_GENERATOR).clear()  # as in a process that begins
        seed_script()
        if seeded:
            tf.keras.utils.set_random_seed(3)
        KERAS.seed_weights(seed)
        drawn.append(tf.keras.layers.Dense(4, kernel_initializer="glorot_uniform"))
        drawn[-1].build((None, 4))

    first, other, again = (get_weights(layer)[0] for layer in drawn)
    assert (first == other).all() == seeded
    assert (first == again).all()


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ((BEGIN, BUILD), "must call ringside.fit"),
        ((BEGIN, BUILD, "sys.exit(3)\n", FIT), "ends with exit code 3"),
        (
            (BEGIN, BUILD, FLAGS, FIT),
            r"code 2: mine.py: error: .*required: --rate.*stand behind --",
        ),
        ((BEGIN, "1 / 0\n", BUILD, FIT), r"ZeroDivisionError: .*mine.py, line 7"),
        ((BEGIN, BUILD, "def f(:\n"), r"SyntaxError.*line 11"),
        ((BEGIN, STRATEGY), "OneDeviceStrategy.*Delete it.*--backend"),
        ((BEGIN, BUILD.replace("model.compile", "print"), FIT), "must be compiled before fit"),
        ((BEGIN, BUILD, FIT.replace("batch_size", "batches")), "unexpected keyword.*'batches'"),
    ],
    ids=[
        "no fit",
        "exit",
        "flags",
        "error",
        "syntax",
        "strategy",
        "not compiled",
        "unknown argument",
    ],
)
def test_a_script_that_does_not_reach_its_fit(
    tmp_path: Path, parts: tuple[str, ...], words: str
) -> None:
    """One message, with the line."""
    with pytest.raises(RefusalError, match=words):
        fit_of(script(tmp_path, *parts))


def test_threads_that_are_set_too_late_get_one_sentence() -> None:
    """The backend of a launched script has started; TensorFlow does not say what helps."""
    tf.zeros(1)
    with pytest.raises(RuntimeError) as late:
        tf.config.threading.set_inter_op_parallelism_threads(7)

    assert "--inter-op-threads" in str(ringside.script._said(late.value))


def test_keras_puts_no_lines_of_its_own_around_a_refusal() -> None:
    """It tells the arguments of the layer's call else."""

    def refuse(x: Any) -> Any:
        raise RefusalError("A rule.", received="a thing")

    with pytest.raises(RefusalError) as refused:
        tf.keras.layers.Lambda(refuse)(rows(2))
    assert str(refused.value) == "A rule. Received: a thing."


class Batches(tf.keras.utils.Sequence):
    """Ten examples in batches of four."""

    def __init__(self) -> None:
        self.x, self.y = rows(10), np.arange(10)

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        part = slice(4 * index, 4 * index + 4)
        return self.x[part], self.y[part]


def test_a_fit_that_a_script_does_not_have(tmp_path: Path) -> None:
    """Its fits are counted, not trained."""
    path = script(tmp_path, BEGIN, BUILD, FIT, FIT)

    assert fit_of(path, 2).epochs == 2
    with pytest.raises(RefusalError, match=r"ends after 2 fits.*-w fit=2 or less"):
        fit_of(path, 3)


LAYERS = "layers = [tf.keras.Input((3,)), tf.keras.layers.Dense(1)]"


@pytest.mark.parametrize(
    ("outside", "inside"),
    [
        (f"{LAYERS}; model = tf.keras.Sequential(layers)\n", ""),
        (f"{LAYERS}; layers[1](x)\n", "model = tf.keras.Sequential(layers); "),
    ],
    ids=["model", "layer"],
)
def test_a_model_that_is_made_outside_of_the_scope_is_refused(
    outside: str, inside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a strategy trains it."""
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    session = SimpleNamespace(
        backend=SimpleNamespace(scope=strategy.scope, strategy_here=strategy, in_strategy=True),
        record=RecordInProgress.begun(spec_of()),
        steps=SimpleNamespace(take=lambda model: None),
    )
    monkeypatch.setattr(ringside.script, "_session", session)
    scope = f'with ringside.scope():\n    {inside}model.compile("sgd", "mse")\n'

    with pytest.raises(RefusalError, match=r"within ringside.scope\(\).*outside of it"):
        run(script(tmp_path, BEGIN, outside, scope))


def compiled() -> Any:
    """A model of two inputs."""
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])
    model.compile("sgd", "mse")
    return model


def test_a_call_says_its_batches() -> None:
    """Of arrays, of a data set and of a Sequence; None: not known before they are read."""
    data = tf.data.Dataset.from_tensor_slices((rows(10), np.arange(10))).batch(4)
    for given, batch, steps in (
        (((rows(70), np.arange(70)), {}), 32, 3),
        (((rows(10), np.arange(10)), {"batch_size": 4, "validation_split": 0.25}), 4, 2),
        (((data,), {}), None, 3),
        (((data,), {"steps_per_epoch": 2}), None, 2),
        (((data.unbatch().filter(lambda x, y: y < 9).batch(4),), {}), None, None),
        (((Batches(),), {}), None, 3),
        (((iter(()),), {}), None, None),
    ):
        parts, arguments = given
        call = fit_call(compiled(), *parts, **arguments)
        assert (call.global_batch, call.steps_per_epoch) == (batch, steps)


def test_a_call_may_be_of_other_batches() -> None:
    """Of arrays and of data sets; the others are their author's."""
    data = tf.data.Dataset.from_tensor_slices((rows(10), np.arange(10))).batch(4)
    arrays = fit_call(compiled(), rows(10), np.arange(10))

    assert arrays.in_batches_of(5).steps_per_epoch == 2
    x, _ = next(iter(fit_call(compiled(), data).in_batches_of(2).arguments["x"]))
    assert len(x) == 2
    with pytest.raises(RefusalError, match="generator is its author's"):
        fit_call(compiled(), iter(())).in_batches_of(2)


@pytest.mark.parametrize(
    ("given", "arguments", "words"),
    [
        ((rows(4), rows(4)), {"batches": 4}, "arguments of Model.fit.*'batches'"),
        ((rows(4), rows(4)), {"gradients": "loss"}, "at the optimizer or at the tape"),
        (
            (tf.data.Dataset.from_tensor_slices((rows(4), rows(4))).batch(2).repeat(),),
            {},
            "without an end must have a number of steps.*steps_per_epoch",
        ),
        (
            (rows(4), rows(4)),
            {"callbacks": [tf.keras.callbacks.BackupAndRestore("x")]},
            "checkpoints of a training itself",
        ),
    ],
)
def test_a_call_that_cannot_be_trained(given: Any, arguments: dict[str, Any], words: str) -> None:
    """Each by one message."""
    with pytest.raises(RefusalError, match=words):
        fit_call(compiled(), *given, **arguments)
    with pytest.raises(RefusalError, match="takes a Keras model"):
        fit_call(rows, *given)


def test_a_script_that_goes_on_by_itself_counts_no_epoch_twice(tmp_path: Path) -> None:
    """Its own `initial_epoch` beside the checkpoint of the run; at last it has none left."""
    seed_script()
    numbers = list[int]()
    seen = tf.keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: numbers.append(epoch)
    )
    for first, epochs in ((0, 2), (2, 4), (4, 4)):
        KERAS.begin_names()  # each is a process of its own
        spec = spec_of(global_batch=4, epochs=epochs, save="all", resume_from=AUTO)
        call = fit_call(
            compiled(),
            rows(8),
            rows(8)[:, :1],
            epochs=epochs,
            initial_epoch=first,
            callbacks=[seen],
        )
        with make_backend(spec, Surroundings()) as backend:
            record = RecordInProgress.begun(spec)
            train_call(call, record, Steps(backend), run_dir=tmp_path, number=1)

    assert numbers == [0, 1, 2, 3]


def test_a_probe_answers_of_a_model_without_weights_and_of_a_job_that_is_over(
    tmp_path: Path,
) -> None:
    """The first step would make the weights; `epochs` is that of the call, from whatever epoch."""
    build = BUILD.replace(", input_shape=(3,)", "")
    fit = FIT.replace("epochs=2", "epochs=2, initial_epoch=2")

    asked = fit_asked(script(tmp_path, BEGIN, build, fit), {})

    assert (asked["parameters"], asked["epochs"], asked["global_batch"]) == (4, 2, 4)


@pytest.mark.parametrize("known", [True, False])
def test_data_without_a_batch_are_refused(tmp_path: Path, known: bool) -> None:
    """drop_remainder leaves none of three rows; or a filter, of which nothing is known before."""
    data = tf.data.Dataset.from_tensor_slices((rows(3), rows(3)[:, :1]))
    empty = (
        data.batch(4, drop_remainder=True) if known else data.filter(lambda x, y: False).batch(2)
    )
    spec = spec_of(global_batch=4, save="record")

    with (
        make_backend(spec, Surroundings()) as backend,
        pytest.raises(RefusalError, match="no batch is left"),
    ):
        call = fit_call(compiled(), empty)
        train_call(call, RecordInProgress.begun(spec), Steps(backend), run_dir=tmp_path, number=1)
