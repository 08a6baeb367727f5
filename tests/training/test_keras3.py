"""Scripts of Keras 3, started as their authors start them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nightly import nightly

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).parent / "scripts" / "keras3.py"
SERIAL = [sys.executable]
MPIRUN = ["mpirun", "-np", "2", "--oversubscribe", sys.executable]


def run(command: list[str], folder: Path, *flags: str) -> dict[str, float]:
    """What the chief of a script tells at its end."""
    env = {k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"}
    done = subprocess.run(
        [*command, str(SCRIPT), *flags],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return told


def test_two_ranks_train_as_one_process_does(tmp_path: Path) -> None:
    """In float64."""
    alone = run(SERIAL, tmp_path)

    assert run(MPIRUN, tmp_path) == pytest.approx(alone, rel=1e-10)


@pytest.mark.parametrize("backend", ["mirrored", nightly("multi_worker_mirrored")])
def test_strategies_train_and_evaluate_alike(backend: str, tmp_path: Path) -> None:
    """By Keras' own fit. A loss of one number for the batch: Keras divides others by replicas."""
    alone = run(SERIAL, tmp_path)
    launch = ["ringside", "launch", str(SCRIPT), "--precision", "float64", "--run-dir", "run"]
    done = subprocess.run(
        [*launch, "--backend", backend, "--replicas", "2"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr

    record, *_ = (tmp_path / "run" / "records").glob("*.json")
    last = json.loads(record.read_text())["epochs"][-1]
    found = {**last["train"], **{f"val_{name}": v for name, v in last["validation"].items()}}
    assert found == pytest.approx({name: alone[name] for name in found}, rel=1e-10)


@pytest.mark.nightly
def test_a_saved_model_loads_without_ringside(tmp_path: Path) -> None:
    """With its optimizer, which has the class that its author chose."""
    run(SERIAL, tmp_path, "--save")
    program = (
        "import keras, sys; model = keras.models.load_model('model.keras'); "
        "print(type(model.optimizer).__name__, 'ringside' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "TF_USE_LEGACY_KERAS": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split()[-2:] == ["Adam", "False"]


def test_what_ringside_asks_of_keras_3_is_what_keras_means() -> None:
    """Predictions, policies, variables and slots, in a process of Keras 3."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT.with_name("keras3_parts.py"))],
        env={**os.environ, "TF_USE_LEGACY_KERAS": "0", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.endswith("all right\n"), done.stderr


@pytest.mark.timeout(600)
@pytest.mark.parametrize("legacy", ["0", nightly("1")])
def test_a_fit_that_is_broken_off_goes_on_as_if_it_had_not_been(legacy: str) -> None:
    """Within epochs and between them, of all kinds of data, and with `steps_per_epoch`."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT.with_name("resumed.py"))],
        env={**os.environ, "TF_USE_LEGACY_KERAS": legacy, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.endswith("all right\n"), done.stderr


def test_a_keras_that_ringside_does_not_know_is_refused() -> None:
    """One message, no traceback of an import."""
    program = (
        "import keras.src.trainers.compile_utils as known; del known.CompileLoss\n"
        "import ringside_core.keras"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TF_USE_LEGACY_KERAS": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Keras 3 must be installed, in a version whose private parts" in done.stderr
