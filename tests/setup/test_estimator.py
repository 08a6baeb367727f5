"""`make estimator` in a fresh checkout: both stacks train what serial trains, or it fails."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BACKENDS = ["serial", "multi_worker_mirrored", "horovod"]

# The packages are installed again; Horovod is compiled only if no wheel is in the user's cache.
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(not shutil.which("python3.11"), reason="TensorFlow 2.15 needs Python 3.11"),
]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make estimator` reads of this checkout, copied."""
    target = tmp_path_factory.mktemp("clone")
    shutil.copy(ROOT / "Makefile", target)
    for folder in ("scripts", "estimator"):
        shutil.copytree(ROOT / folder, target / folder, ignore=shutil.ignore_patterns(".venv"))
    return target


def make_estimator(clone: Path) -> tuple[int, dict[str, float], str]:
    """Exit code, each row's deviation by backend, and all output."""
    done = subprocess.run(
        ["make", "estimator"], cwd=clone, capture_output=True, text=True, check=False
    )
    rows = [line.split() for line in done.stdout.splitlines()]
    deviations = {row[0]: float(row[1]) for row in rows if row and row[0] in BACKENDS}
    return done.returncode, deviations, done.stdout + done.stderr


def test_each_stack_trains_what_the_serial_run_trains(clone: Path) -> None:
    """One command makes the environment, trains three times and prints three rows."""
    code, deviations, output = make_estimator(clone)

    assert code == 0, output
    assert list(deviations) == BACKENDS, output
    assert max(deviations.values()) <= 1e-10, output


@pytest.mark.parametrize(
    "line",
    [
        "    hooks.append(hvd.BroadcastGlobalVariablesHook(0))\n",
        "    optimizer = hvd_keras.DistributedOptimizer(optimizer)\n",
    ],
)
def test_without_this_line_the_weights_differ(clone: Path, line: str) -> None:
    """The comparison finds a rank with other first weights, and gradients that are not averaged."""
    program = clone / "estimator" / "train.py"
    whole = program.read_text(encoding="utf-8")
    assert line in whole
    program.write_text(whole.replace(line, ""), encoding="utf-8")
    try:
        code, deviations, output = make_estimator(clone)
    finally:
        program.write_text(whole, encoding="utf-8")

    assert code != 0, output
    assert deviations["multi_worker_mirrored"] <= 1e-10 < deviations["horovod"], output
