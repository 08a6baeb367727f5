"""What needs a process of its own: Keras 3, and several replicas in one process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nightly import nightly

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(__file__).parent / "scripts"


def run(*words: str, legacy: str = "0") -> subprocess.CompletedProcess[str]:
    """A program in a process of Keras 3, or of legacy Keras."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, "TF_USE_LEGACY_KERAS": legacy, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )


def test_what_ringside_asks_of_keras_3_is_what_keras_means() -> None:
    """Policies, variables and slots."""
    done = run(str(SCRIPTS / "keras3_parts.py"))

    assert done.stdout.endswith("all right\n"), done.stderr


@pytest.mark.parametrize("legacy", ["0", "1"])
def test_a_replica_without_rows_predicts_none(legacy: str) -> None:
    """33 rows in batches of 32: of the last one the first of two replicas has no row.

    Some kernels take no empty batch in float32, such as a convolution with a relu.
    """
    done = run(str(SCRIPTS / "predicted.py"), legacy=legacy)

    assert done.stdout.endswith("all right\n"), done.stderr


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("legacy", "cases"),
    [
        ("0", ("arrays", "two at once", "generator")),
        ("1", ("unknown", "endless", "sequence")),
        nightly("0", ()),
        nightly("1", ()),
    ],
)
def test_a_fit_that_is_broken_off_goes_on_as_if_it_had_not_been(
    legacy: str, cases: tuple[str, ...]
) -> None:
    """Within epochs and between them, of all kinds of data, and with `steps_per_epoch`."""
    done = run(str(SCRIPTS / "resumed.py"), *cases, legacy=legacy)

    assert done.stdout.endswith("all right\n"), done.stderr


def test_a_keras_that_ringside_does_not_know_is_refused() -> None:
    """One message, no traceback of an import."""
    program = (
        "import keras.src.backend.common.global_state as known; del known.get_global_attribute\n"
        "import ringside_core.keras"
    )

    done = run("-c", program)

    assert "Keras 3 must be installed, in a version whose private parts" in done.stderr
