"""A program whose data are others each time it is run: that is told first, and not what follows."""

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import train
from backends import make_backend
from launch.task import Reporter
from ringside.verify.request import PLAIN, Case
from ringside.verify.task import watch
from ringside.verify.trace import OTHER_DATA, Trace
from ringside_core.keras import tf
from ringside_core.specs import Surroundings
from tests.training.test_trainer import serial_spec

SCRIPT = """
import numpy as np, ringside
from ringside import tf
x = DRAWN((8, 3)).astype(np.float32)
with ringside.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(3,))])
    model.compile("sgd", "mse")
ringside.fit(model, x, x[:, :1], batch_size=4)
"""


@pytest.mark.parametrize(
    ("drawn", "error"),
    [
        ("np.random.random", ""),  # a script's global numbers are seeded before it
        ("np.random.default_rng(3).random", ""),
        ("np.random.default_rng().random", OTHER_DATA),
    ],
)
def test_unseeded_data_are_what_plain_keras_tells_of(
    drawn: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference trains on those of one run of the script, plain Keras on those of another."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    np.random.seed(None)  # as in a new process; another test has seeded this one
    mine = tmp_path / "mine.py"
    mine.write_text(SCRIPT.replace("DRAWN", drawn))
    spec = serial_spec(workload=str(mine), global_batch=4, epochs=1, save="record", ledger="full")
    case = Case(name="few", spec=spec.replace(precision="float64"), steps=2, plain=True)

    with make_backend(case.spec, Surroundings()) as backend:
        once = partial(
            train._train_once, backend=backend, reporter=Reporter(tmp_path, "rank-0", aloud=False)
        )
        watched = watch(case, tmp_path, once)

    tf.keras.backend.set_floatx("float32")
    assert watched.error == ""
    plain = Trace.read(tmp_path / PLAIN)
    assert plain.error == error
