"""`ringside check`: what is said of a program before anything long starts."""

import sys
from pathlib import Path

import pytest

from ringside.cli.check import _lines
from ringside.verify.preview import preview
from ringside_core.specs import RunSpec
from tests.training.test_trainer import serial_spec

SCRIPT = """
import numpy as np, ringside
from ringside import tf
x = np.linspace(0, 1, 21, dtype=np.float32).reshape(7, 3)
with ringside.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(3,)), LAYER])
    model.compile("sgd", "mse")
ringside.fit(model, x, x[:, :2], batch_size=4, epochs=2, validation_data=(x[:4], x[:4, :2]),
             sample_weight=np.ones(7), callbacks=[tf.keras.callbacks.EarlyStopping()])
"""


@pytest.fixture(autouse=True)
def unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Running a user's file changes where Python looks."""
    monkeypatch.setattr(sys, "path", list(sys.path))


def spec_of(folder: Path, layer: str) -> RunSpec:
    """A run of the script with this second layer."""
    (folder / "mine.py").write_text(SCRIPT.replace("LAYER", layer))
    return serial_spec(workload=str(folder / "mine.py"), global_batch=4, epochs=2)


def test_a_script_is_told_in_numbers(tmp_path: Path) -> None:
    """Seven examples in batches of four; 3 · 2 + 2 weights."""
    spec = spec_of(tmp_path, "tf.keras.layers.Dropout(0.5)")
    lines = _lines(spec, preview(spec))

    assert lines[:5] == [
        "fit: number 1 of the script; -w fit=2 is for the next one, if any",
        "data: 7 examples, with weights; 4 for validation",
        "training: 2 epochs of 2 updates on 4 examples, the last one on 3 examples; SGD",
        "model: Sequential, 8 parameters, computes in 32 bits",
        "callbacks: EarlyStopping; certificates and comparisons go without",
    ]
    assert any(line.startswith("by design: dropout") for line in lines)
    assert "certificate: exact" in lines[-2]


def test_what_compile_asks_and_no_flag_does_is_told(tmp_path: Path) -> None:
    """It changes no number, so the run goes on."""
    spec = spec_of(tmp_path, "tf.keras.layers.Dense(2)")
    program = tmp_path / "mine.py"
    program.write_text(program.read_text().replace('"mse")', '"mse", steps_per_execution=4)'))

    lines = _lines(spec, preview(spec))

    assert [line for line in lines if line.startswith("compile: steps_per_execution=4 is not used")]


def test_a_model_that_names_float32_is_told(tmp_path: Path) -> None:
    """Its certificate is in float32."""
    layer = "tf.keras.layers.Lambda(lambda t: t * tf.constant(2.0, tf.float32))"
    spec = spec_of(tmp_path, layer)
    lines = _lines(spec, preview(spec))

    (told,) = [line for line in lines if line.startswith("certified in float32 only: the workload")]
    assert "RefusalError" not in told


def test_what_stands_in_the_way_of_a_certificate_is_told(tmp_path: Path) -> None:
    """A layer that subtracts the mean of its batch."""
    couples = "tf.keras.layers.Lambda(lambda x: x - tf.reduce_mean(x, axis=0))"
    spec = spec_of(tmp_path, couples)
    lines = _lines(spec, preview(spec))

    assert lines[-1].startswith("no certificate: ")
    assert "lambda" in lines[-1]


def test_what_ends_a_training_is_told(tmp_path: Path) -> None:
    """A metric that takes four examples, and no short batch."""
    spec = spec_of(tmp_path, "tf.keras.layers.Dense(2)")
    program = tmp_path / "mine.py"
    metric = "def four(y, p):\n    return tf.reshape(p, (4, 2))[:, 0]\n"
    text = program.read_text().replace('"mse")', '"mse", weighted_metrics=[four])')
    program.write_text(metric + text)

    cannot = "no certificate: it cannot be trained: InvalidArgumentError: Input"
    (told,) = [line for line in _lines(spec, preview(spec)) if line.startswith(cannot)]

    assert told.endswith(f"({program}, line 2)")


def test_a_callback_that_waits_for_batches_of_a_validation_is_named(tmp_path: Path) -> None:
    """Keras' own, which have such methods too, are not."""
    spec = spec_of(tmp_path, "tf.keras.layers.Dense(2)")
    program = tmp_path / "mine.py"
    own = (
        "class Mine(tf.keras.callbacks.Callback):\n"
        "    def on_test_batch_end(self, batch, logs=None):\n"
        "        print(logs['loss'])\n"
    )
    text = program.read_text().replace("x = np", f"{own}\nx = np", 1)
    beside = (
        "callbacks=[Mine(), tf.keras.callbacks.ProgbarLogger(), tf.keras.callbacks.Callback(), "
    )
    program.write_text(text.replace("callbacks=[", beside))

    told = [line for line in _lines(spec, preview(spec)) if line.startswith("callbacks: ")]

    assert told[1:] == [
        "callbacks: Mine: on_test_batch_end is never called: the metrics of a validation are those "
        "of the whole one. Use on_test_end or on_epoch_end."
    ]


SUMS = """
class Sums(tf.keras.layers.Layer):
    def call(self, x):
        self.add_loss(tf.reduce_sum(x ** 2))
        return x
"""


def test_what_is_refused_in_training_is_told_beside_the_certificate(tmp_path: Path) -> None:
    """A loss that is a sum has no certificate, and is not trained either: in the same words."""
    spec = spec_of(tmp_path, "Sums()")
    program = tmp_path / "mine.py"
    program.write_text(program.read_text().replace("x = np", f"{SUMS}\nx = np", 1))

    told = [line for line in _lines(spec, preview(spec)) if line.startswith("no certificate: ")]

    assert told[0].startswith(
        "no certificate: it cannot be trained: A loss that a layer adds must be a mean over the "
        "batch, not a sum. Received: "
    )
    assert "is a sum over its batch" in told[1]


TAKES_PAIRS = """
class Pairs(tf.keras.Sequential):
    def train_step(self, data):
        tf.debugging.assert_equal(tf.shape(data[0])[0] % 2, 0)
        return super().train_step(data)
"""


@pytest.mark.parametrize(
    ("examples", "begins"),
    [
        (15, "no certificate: it cannot be trained: InvalidArgumentError: "),
        (16, "no certificate: these data, in whole batches, can be trained, but a certificate is"),
    ],
)
def test_what_only_a_short_batch_ends_is_told_apart(
    examples: int, begins: str, tmp_path: Path
) -> None:
    """Fifteen examples in batches of eight have one; sixteen have none, and a certificate has."""
    spec = spec_of(tmp_path, "tf.keras.layers.Dense(2)").replace(global_batch=8)
    program = tmp_path / "mine.py"
    text = program.read_text().replace("tf.keras.Sequential(", "Pairs(")
    text = text.replace("1, 21", f"1, {3 * examples}").replace("(7, 3)", f"({examples}, 3)")
    text = text.replace("np.ones(7)", f"np.ones({examples})").replace("[:4", "[:8")
    program.write_text(text.replace("x = np", f"{TAKES_PAIRS}\nx = np", 1))

    (told,) = _lines(spec, preview(spec))[-1:]

    assert told.startswith(begins)
    assert f"({program}, line " in told


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [
        ("tf.keras.optimizers.SGD(0.0)", "must change a weight. Received: a learning rate of 0"),
        ("tf.keras.optimizers.SGD(1e30)", "weights are no longer numbers"),
    ],
)
def test_what_trains_nothing_is_not_called_exact(
    optimizer: str, words: str, tmp_path: Path
) -> None:
    """A callback may mend it; a certificate goes without."""
    spec = spec_of(tmp_path, "tf.keras.layers.Dense(2)")
    program = tmp_path / "mine.py"
    program.write_text(program.read_text().replace('"sgd"', optimizer))

    (told,) = _lines(spec, preview(spec))[-1:]

    assert told.startswith("no certificate: ")
    assert words in told
    assert told.endswith("; a certificate goes without its callbacks")
