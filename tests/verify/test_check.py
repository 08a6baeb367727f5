"""`ringside check`: what is said of a program before anything long starts."""

from pathlib import Path

import pytest
from rich.console import Console

from ringside.cli.check import _checked
from ringside_core.specs import RunSpec
from tests.unit.stats.factory import spec_of

pytestmark = pytest.mark.usefixtures("warm")
SCRIPT = """
import numpy as np, ringside
from ringside import tf
x = np.linspace(0, 1, 21, dtype=np.float32).reshape(7, 3)
with ringside.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(3,)), LAYER])
    model.compile("sgd", LOSS)
ringside.fit(model, x, x[:, :2], batch_size=4, epochs=2, validation_data=(x[:4], x[:4, :2]),
             sample_weight=np.ones(7), callbacks=[tf.keras.callbacks.EarlyStopping()])
"""
NORMALISED = "tf.keras.layers.BatchNormalization()"


def run_of(workload: str, global_batch: int) -> RunSpec:
    """Two epochs of a program."""
    return spec_of("serial", workload=workload, global_batch=global_batch, epochs=2, resources={})


@pytest.mark.parametrize(
    ("layer", "loss", "certified", "words"),
    [
        (
            "tf.keras.layers.Dropout(0.5)",
            '"mse"',
            True,
            "trial: 4 updates of mirrored ×2 were held",
        ),
        (
            NORMALISED,
            '"mse"',
            True,
            "by design: the training step: what it computes from rows that",
        ),
        (
            "tf.keras.layers.Dense(2)",
            "lambda y, p: tf.reduce_sum((y - p) ** 2)",
            False,
            "a sum over the rows of a batch, of which replicas have parts: divide it by the number",
        ),
    ],
    ids=["drawn", "coupled", "sum"],
)
def test_it_says_what_verify_will_find(
    tmp_path: Path, layer: str, loss: str, certified: bool, words: str
) -> None:
    """Seven rows in batches of four; what stands in the way of a certificate is said."""
    (tmp_path / "mine.py").write_text(SCRIPT.replace("LAYER", layer).replace("LOSS", loss))
    spec = run_of(str(tmp_path / "mine.py"), 4)
    lines, passed = _checked(Console(), spec)

    parameters = {"De": 14, "Ba": 16, "Dr": 8}[layer.removeprefix("tf.keras.layers.")[:2]]
    assert lines[:4] == [
        "fit: number 1 of the script; -w fit=2 is for the next, if any",
        "training: 2 epochs of 2 updates on 4 rows; SGD",
        f"model: Sequential, {parameters} parameters",
        "callbacks: EarlyStopping; certificates go without",
    ]
    assert any(words in line for line in lines[4:]), lines
    assert passed is certified


def test_a_workload_of_ringsides_is_checked_too() -> None:
    """By its name; it has one fit."""
    lines, passed = _checked(Console(), run_of("digits", 48))

    assert passed, lines
    assert lines[0].startswith("training: 2 epochs of ")
    assert lines[1].startswith("model: Sequential, ")
