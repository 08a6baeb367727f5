"""A script up to its fit: what it asks, and what it is refused."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends import make_backend
from ringside_core.keras import get_weights, seed_script, seed_weights, tf
from ringside_core.specs import RecordInProgress, RefusalError, Surroundings
from ringside_core.workloads.fit_arguments import FitArguments, checked_arguments
from ringside_core.workloads.pipeline import make_pipeline
from ringside_core.workloads.registry import load_workload
from ringside_core.workloads.script import captured_fit, workload_of
from ringside_core.workloads.source import ArraySource
from ringside_core.workloads.weights import labels
from ringside_core.workloads.workload import Workload
from tests.training.test_trainer import serial_spec
from trainers.fit import fit
from trainers.prepare import prepare

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
LAYERS = "layers = [tf.keras.Input((3,)), tf.keras.layers.Dense(1)]"
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


def arrays_of(asked: FitArguments) -> Any:
    """Training data in memory."""
    assert isinstance(asked.train, ArraySource)
    return asked.train.arrays


def test_a_script_is_a_workload_up_to_its_fit(tmp_path: Path) -> None:
    """Its own arguments are its own; what follows the fit is not run."""
    path = script(tmp_path, BEGIN, BUILD, "epochs = int(sys.argv[1])\n", FIT, "raise SystemExit(5)")

    asked = captured_fit(f"{path} 7")
    workload = load_workload(f"{path} 7", options={}, data_dir=None)

    assert (asked.global_batch, asked.epochs) == (4, 2)
    assert workload.train.num_examples == 20
    assert not workload.validates


def test_main_guards_and_registered_classes_run_again(tmp_path: Path) -> None:
    """A script is run once more for each model; Keras refuses a class of the same name."""
    registers = (
        "@tf.keras.utils.register_keras_serializable()\nclass Own(tf.keras.layers.Dense):\n  pass\n"
    )
    main = f"if __name__ == '__main__':\n    {FIT}"
    workload = workload_of(script(tmp_path, BEGIN, registers, BUILD, main))

    assert workload.build_model() is not workload.build_model()


def test_weights_follow_the_seed_of_the_run(tmp_path: Path) -> None:
    """Also if the script has a seed of its own, and draws before its scope."""
    seeds = "tf.keras.utils.set_random_seed(3)\nnp.random.random()\n"
    workload = workload_of(script(tmp_path, BEGIN, seeds, BUILD, FIT))

    def drawn(seed: int) -> Any:
        tf.keras.utils.set_random_seed(seed)
        return get_weights(workload.build_model())[0]

    drawn(1)  # the first one is that which was captured
    assert (drawn(1) == drawn(1)).all()
    assert (drawn(1) != drawn(2)).any()


def test_the_seeds_of_a_script_are_its_data_s(tmp_path: Path) -> None:
    """Also below its scope: every process must hold the same examples."""
    data = "y = np.random.random((20, 1))\n"
    path = script(tmp_path, BEGIN, "np.random.seed(3)\n", BUILD, data, FIT)

    for _ in range(2):
        drawn = arrays_of(captured_fit(path))[1]
        np.testing.assert_array_equal(drawn, np.random.RandomState(3).random((20, 1)))


def test_a_script_without_seeds_draws_the_same_again(tmp_path: Path) -> None:
    """In each process, whatever draws; its weights still follow the run."""
    before = "x = np.random.random((20, 3)) + random.random() + float(tf.random.uniform([]))\n"
    below = "y = np.random.random((20, 1))\n"
    path = script(tmp_path, BEGIN, "import random\n", before, BUILD, below, FIT)

    first = captured_fit(path, seed=1)
    tf.random.uniform([3])
    again = captured_fit(path, seed=2)

    for one, other in zip(arrays_of(first), arrays_of(again), strict=True):
        np.testing.assert_array_equal(one, other)
    weights = [get_weights(asked.model)[0] for asked in (first, again)]
    assert (weights[0] != weights[1]).any()


def test_layers_without_a_name_are_called_the_same_again(tmp_path: Path) -> None:
    """Counted on, the second run's would be an author's own: keras.io's recogniser of speech."""
    build = BUILD.replace(
        "[tf.keras", '[tf.keras.layers.Dense(2, name="dense_1"), tf.keras', 1
    ).replace(", input_shape=(3,)", "")
    path = script(tmp_path, BEGIN, build, FIT)

    names = [[one.name for one in captured_fit(path).model.layers] for _ in range(3)]

    assert names == [["dense_1", "dense"]] * 3


@pytest.mark.parametrize("seeded", [True, False])
def test_a_scope_seeds_what_its_author_has_not(seeded: bool) -> None:
    """With the seed of the run."""
    drawn = []
    for seed in (1, 2):
        seed_script()
        if seeded:
            tf.keras.utils.set_random_seed(3)
        seed_weights(seed, also_if_seeded=False)
        drawn.append(tf.keras.layers.Dense(4, kernel_initializer="glorot_uniform"))
        drawn[-1].build((None, 4))

    same = (get_weights(drawn[0])[0] == get_weights(drawn[1])[0]).all()
    assert same == seeded


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
        ((BEGIN, BUILD.replace("model.compile", "print"), FIT), "must be compiled before fit"),
        ((BEGIN, BUILD, FIT.replace("batch_size", "batches")), "unexpected keyword.*'batches'"),
    ],
    ids=["no fit", "exit", "flags", "error", "syntax", "not compiled", "unknown argument"],
)
def test_a_script_that_does_not_reach_its_fit(
    tmp_path: Path, parts: tuple[str, ...], words: str
) -> None:
    """One message, with the line."""
    with pytest.raises(RefusalError, match=words):
        workload_of(script(tmp_path, *parts))


def test_the_numbers_that_a_skipped_fit_lacks_are_told_of_only_there(tmp_path: Path) -> None:
    """Not of a script that ends before its first fit."""
    path = script(tmp_path, BEGIN, BUILD, FIT, "sys.exit(3)\n", FIT)

    with pytest.raises(RefusalError, match="has no numbers"):
        workload_of(path, fit=2)
    with pytest.raises(RefusalError, match="exit code 3") as told:
        workload_of(script(tmp_path, BEGIN, BUILD, "sys.exit(3)\n", FIT))
    assert "has no numbers" not in str(told.value)


@pytest.mark.parametrize(
    ("outside", "inside"),
    [
        (f"{LAYERS}; model = tf.keras.Sequential(layers)\n", ""),
        (f"{LAYERS}; layers[1](x)\n", "model = tf.keras.Sequential(layers); "),
    ],
    ids=["model", "layer"],
)
def test_a_model_that_is_made_outside_of_the_scope_is_told(
    outside: str, inside: str, tmp_path: Path
) -> None:
    """Wherever a strategy trains it: run to its end, a script cannot compile such a model."""
    scope = f'with ringside.scope():\n    {inside}model.compile("sgd", "mse")\n'
    path = script(tmp_path, BEGIN, outside, scope, FIT)

    unbuilt = BUILD.replace(", input_shape=(3,)", "")
    of_keras = script(tmp_path, BEGIN, unbuilt, "model.predict(x, verbose=0)\n", FIT, name="b.py")
    compiled = script(tmp_path, BEGIN, BUILD, 'model.compile("adam", "mse")\n', FIT, name="c.py")

    assert captured_fit(path).global_batch == 4  # without a strategy nothing is to be told
    for fine in (of_keras, compiled):  # Keras enters the scope of the model's strategy
        with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
            assert captured_fit(fine).global_batch == 4
    with (
        tf.distribute.OneDeviceStrategy("/cpu:0").scope(),
        pytest.raises(RefusalError, match=r"within ringside.scope\(\).*dense.*outside of it"),
    ):
        captured_fit(path)


def test_a_skipped_fit_makes_the_weights_that_its_model_has_afterwards(tmp_path: Path) -> None:
    """A script may look at them, or build the next model from them."""
    unbuilt = BUILD.replace(", input_shape=(3,)", "")
    path = script(tmp_path, BEGIN, unbuilt, FIT, "assert len(model.get_weights()) == 2\n", FIT)

    assert workload_of(path, fit=2).build_model().built


def test_a_model_of_one_size_of_batch_is_told(tmp_path: Path) -> None:
    """Keras would train it; replicas get parts of a batch."""

    def model() -> Any:
        of_four = tf.keras.layers.Lambda(lambda x: tf.reshape(tf.reshape(x, [12]), [4, 3]))
        return tf.keras.Sequential([tf.keras.Input((3,)), of_four, tf.keras.layers.Dense(1)])

    workload = Workload("fixed", model, (rows(8), rows(8)[:, :1]), loss="mse", optimizer="sgd")
    spec = serial_spec(global_batch=4)

    with (
        make_backend(spec, Surroundings()) as backend,
        pytest.raises(RefusalError, match=r"any number of examples.*12.*from the batch"),
    ):
        prepare(RecordInProgress.begun(spec), workload, backend, run_dir=tmp_path)


def test_keras_puts_no_lines_of_its_own_around_a_refusal() -> None:
    """It tells the arguments of the layer's call else."""

    def refuse(x: Any) -> Any:
        raise RefusalError("A rule.", received="a thing")

    with pytest.raises(RefusalError) as told:
        tf.keras.layers.Lambda(refuse)(rows(2))
    assert str(told.value) == "A rule. Received: a thing."


def test_a_step_sees_the_arguments_of_its_script(tmp_path: Path) -> None:
    """Also where something else runs it, with arguments of its own."""
    own = OWN_STEP.replace('"loss": loss', '"loss": loss, "rate": float(sys.argv[1])')
    path = script(tmp_path, BEGIN, own, "ringside.fit(model, triplets)\n")

    model = workload_of(f"{path} 7").build_model()

    assert model.train_step((rows(4)[:, :1] * np.ones(3),) * 3)["rate"] == 7


def test_options_of_a_workload_are_not_those_of_a_script(tmp_path: Path) -> None:
    """A script has flags of its own."""
    with pytest.raises(RefusalError, match="its own flags"):
        load_workload(script(tmp_path, BEGIN), options={"a": 1}, data_dir=None)


def test_arrays_are_divided_as_keras_divides_them() -> None:
    """The last ones are held out; weights go with their examples."""
    x, y, weight = rows(10), np.arange(10), np.arange(10) / 2
    asked = checked_arguments(None, x, y, validation_split=0.25, sample_weight=weight)

    for found, expected in zip(arrays_of(asked), (x[:7], y[:7], weight[:7]), strict=True):
        np.testing.assert_array_equal(found, expected)
    for found, expected in zip(asked.validation, (x[7:], y[7:], weight[7:]), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert asked.global_batch == 32


def test_lists_of_numbers_are_arrays_and_lists_of_arrays_are_inputs() -> None:
    """As in Keras."""
    asked = checked_arguments(
        None, [rows(3), rows(3)], [0, 1, 0], validation_data=[rows(2), [1, 1]]
    )

    (first, second), labels = arrays_of(asked)
    assert first.shape == second.shape == (3, 2)
    assert labels.tolist() == [0, 1, 0]
    assert asked.validation[1].tolist() == [1, 1]


def test_what_compile_says_that_no_backend_can_do() -> None:
    """Steps in Python; metrics with the weights of their examples, and metrics without."""
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])
    model.compile("sgd", "mse", metrics=["mae"], weighted_metrics=["mse"])
    data = tf.data.Dataset.from_tensor_slices((rows(4), rows(4)[:, 0], np.ones(4))).batch(2)

    with pytest.raises(RefusalError, match="weighted_metrics"):
        checked_arguments(model, rows(4), np.zeros(4), class_weight={0: 1.0})
    with pytest.raises(RefusalError, match="weighted_metrics"):
        checked_arguments(model, data)
    held_out = (rows(2), np.zeros(2), np.ones(2))
    with pytest.raises(RefusalError, match="weighted_metrics"):
        checked_arguments(model, rows(4), np.zeros(4), validation_data=held_out)
    model.compile("sgd", "mse", run_eagerly=True)
    with pytest.raises(RefusalError, match="is a graph"):
        checked_arguments(model, rows(4), np.zeros(4))


def test_a_short_last_batch_is_told() -> None:
    """Of data that end Keras would leave it out of this epoch, and begin the next one with it."""
    data = tf.data.Dataset.from_tensor_slices((rows(10), np.arange(10))).batch(4)
    asked = checked_arguments(None, data, steps_per_epoch=2)

    assert asked.train.said[-1] == (
        "steps_per_epoch=2 leaves out the short last batch; it is trained on"
    )


def test_an_evaluation_may_be_of_the_first_batches() -> None:
    """As `validation_steps` says; of a data set that is shuffled they would be others each time."""
    asked = checked_arguments(
        None, rows(8), np.arange(8), batch_size=4, validation_data=(rows(10), np.arange(10)),
        validation_steps=2,
    )  # fmt: skip
    np.testing.assert_array_equal(asked.validation.arrays[1], np.arange(8))

    data = tf.data.Dataset.from_tensor_slices((rows(10), np.arange(10)))
    fit = partial(checked_arguments, None, rows(8), np.arange(8), validation_steps=2)
    asked = fit(validation_data=data.batch(3))
    assert asked.validation.num_examples == 6
    with pytest.raises(RefusalError, match="validation_steps=2, and 10 examples"):
        fit(validation_data=data.shuffle(10).batch(3))


def test_a_data_set_says_its_batch() -> None:
    """Its size is the global batch."""
    data = tf.data.Dataset.from_tensor_slices((rows(10), np.arange(10))).shuffle(10).batch(4)
    asked = checked_arguments(None, data, steps_per_epoch=3)

    assert asked.global_batch == 4
    assert asked.train.num_examples == 10


class Batches(tf.keras.utils.Sequence):
    """Ten examples in batches of four."""

    def __init__(self) -> None:
        self.x, self.y = rows(10), np.arange(10)

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        part = slice(4 * index, 4 * index + 4)
        return self.x[part], self.y[part]


def test_batches_of_a_sequence_are_taken_apart() -> None:
    """Its first batch is the global batch."""
    asked = checked_arguments(None, Batches(), validation_data=Batches())

    assert asked.global_batch == 4
    for found, expected in zip(arrays_of(asked), (rows(10), np.arange(10)), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert asked.train.said[0] == "Batches is read once; its batches are taken apart"
    assert asked.train.shuffled
    assert not checked_arguments(None, Batches(), shuffle=False).train.shuffled


@pytest.mark.parametrize("form", [lambda x: x, lambda x: {"in": x}], ids=["array", "dict"])
def test_batches_of_a_sequence_may_be_inputs_alone(form: Any) -> None:
    """They are no tuple then, which would be inputs and labels."""

    class Inputs(Batches):
        def __getitem__(self, index: int) -> Any:
            return form(super().__getitem__(index)[0])

    asked = checked_arguments(None, Inputs())

    (found,) = arrays_of(asked)
    np.testing.assert_array_equal(tf.nest.flatten(found)[0], rows(10))


@pytest.mark.parametrize("shuffle", [True, False])
def test_arrays_are_shuffled_as_fit_says(shuffle: bool) -> None:
    """`shuffle` of `Model.fit`."""
    assert checked_arguments(None, rows(4), rows(4), shuffle=shuffle).train.shuffled is shuffle


OWN_STEP = """
class Triplets(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.net = tf.keras.layers.Dense(2, input_shape=(3,))
    def call(self, parts):
        return [self.net(part) for part in parts]
    def train_step(self, parts):
        with tf.GradientTape() as tape:
            a, p, n = self(parts)
            loss = tf.reduce_mean((a - p) ** 2) - tf.reduce_mean((a - n) ** 2)
        mine = self.net.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, mine), mine))
        return {"loss": loss}
with ringside.scope():
    model = Triplets()
    model.compile("sgd", weighted_metrics=[])
triplets = tf.data.Dataset.from_tensor_slices((x, x + 1, x + 2)).batch(4)
"""


def test_a_fit_that_a_script_does_not_have(tmp_path: Path) -> None:
    """Its fits are counted, not trained."""
    path = script(tmp_path, BEGIN, BUILD, FIT, FIT)

    assert workload_of(path, fit=2).name == "mine"
    with pytest.raises(RefusalError, match=r"ends after 2 fits.*-w fit=2 or less"):
        workload_of(path, fit=3)


def test_three_parts_that_are_alike_are_inputs(tmp_path: Path) -> None:
    """Anchor, positive and negative for an author's own step: the third one is no weight."""
    path = script(tmp_path, BEGIN, OWN_STEP, "ringside.fit(model, triplets)\n")

    workload = workload_of(path)

    model = workload.build_model()
    assert [tuple(one.shape) for one in model.weights] == [(3, 2), (2,)]
    spec = serial_spec(global_batch=4)
    with make_backend(spec, Surroundings()) as backend:
        train = make_pipeline(spec, workload, backend.capabilities, training=True)
        (anchor, positive, negative), y, weight, *_ = next(iter(train.dataset(backend.input_shard)))
    assert not train.weighted
    assert labels(y) is None
    np.testing.assert_array_equal(weight, np.ones(4))
    np.testing.assert_array_equal(positive, np.asarray(anchor) + 1)
    np.testing.assert_array_equal(negative, np.asarray(anchor) + 2)


def test_triplets_are_validated_by_pairs(tmp_path: Path) -> None:
    """In a Workload too: the author's test step gets (x, y), of a data set and of arrays."""

    class Embedding(tf.keras.Model):
        """Its call takes a single input, its steps a triplet or a pair."""

        def __init__(self) -> None:
            super().__init__()
            self.net = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])

        def call(self, x: Any) -> Any:
            return self.net(x + tf.zeros((1, 2)))

        def train_step(self, data: Any) -> Any:
            anchor, positive, negative = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(self(anchor) + self(positive) - 3 * self(negative))
            mine = self.net.trainable_variables
            self.optimizer.apply_gradients(zip(tape.gradient(loss, mine), mine, strict=True))
            return {"loss": loss}

        def test_step(self, data: Any) -> Any:
            x, y = data
            return {"loss": tf.reduce_mean(x), "label": tf.reduce_mean(y)}

    def model() -> Any:
        made = Embedding()
        made.compile("sgd")
        return made

    x, y = rows(7).astype(np.float32), np.arange(7, dtype=np.float32)
    triplets = tf.data.Dataset.from_tensor_slices((x, x + 1, x + 2)).batch(4)
    for held_out in ((x, y), tf.data.Dataset.from_tensor_slices((x, y)).batch(4)):
        workload = Workload("triplets", model, triplets, held_out)
        record = RecordInProgress.begun(serial_spec(global_batch=4, save="record"))
        with make_backend(record.spec, Surroundings()) as backend:
            fit(prepare(record, workload, backend, run_dir=tmp_path))

        told = record.epochs[-1].validation
        assert told["label"] == pytest.approx(3.0)
        assert told["loss"] == pytest.approx(np.mean(x))


def test_unweighted_metrics_beside_weights_need_keras_own_evaluation() -> None:
    """A loss that a model computes itself is evaluated by the model, with its weights."""

    class Computing(tf.keras.Sequential):
        def compute_loss(self, *given: Any, **named: Any) -> Any:
            return super().compute_loss(*given, **named)

    model = Computing([tf.keras.layers.Dense(1, input_shape=(2,))])
    model.compile("sgd", "mse", metrics=["mae"])

    with pytest.raises(RefusalError, match="weighted, in a test_step of one's own"):
        checked_arguments(model, rows(4), rows(4)[:, :1], sample_weight=np.ones(4))


@pytest.mark.parametrize(
    ("x", "arguments", "words"),
    [
        (rows(4), {"validation_freq": 2}, "after each epoch"),
        (rows(4), {"batch_size": 0}, "an example at least"),
        (rows(4), {"validation_split": 0.5, "validation_data": (rows(2), rows(2))}, "or split off"),
        (rows(40), {"steps_per_epoch": 11, "batch_size": 4}, "one pass over the data"),
        (rows(4), {"validation_split": 1.0}, "both sides"),
        (rows(4), {"sample_weight": np.ones(4)}, "need labels"),
        (None, {}, "needs data"),
        (iter(()), {}, "arrays, a tf.data.Dataset or a keras.utils.Sequence"),
        (Batches(), {"y": rows(10)}, "keras.utils.Sequence brings its"),
        (tf.data.Dataset.from_tensor_slices(rows(4)), {}, "must be batched"),
        (tf.data.Dataset.from_tensor_slices(rows(4)).batch(2), {"batch_size": 2}, "brings its"),
        (tf.data.Dataset.from_tensor_slices(rows(4)).batch(2), {"validation_split": 0.5}, "arrays"),
    ],
)
def test_arguments_that_cannot_be_distributed(
    x: Any, arguments: dict[str, Any], words: str
) -> None:
    """Each by one message."""
    with pytest.raises(RefusalError, match=words):
        checked_arguments(None, x, **arguments)
