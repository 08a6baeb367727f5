"""Every backend gives the same answer to the same question, in fresh processes."""

import dataclasses
import hashlib
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from launch import Site, execute, make_plan
from ringside_core.specs import Execution, RunRecord
from tests.contract.cases import (
    BACKEND_CASES,
    EPOCHS,
    GLOBAL_BATCH,
    NUM_TRAIN,
    NUM_VALIDATION,
    Case,
)
from tests.nightly import daily
from tests.warm import Forkery

HERE = Path(__file__).parent
DEADLINE_S = 120.0
RELATIVE = 1e-10
"""Agreement asked of float64."""

pytestmark = pytest.mark.usefixtures("quick_horovodrun")
# Several replicas show what one does; the serial run has no more. Of Horovod's controllers one
# shows what the others show; tests/training/test_same_reading.py trains under MPI.
DAILY = [case for case in BACKEND_CASES[:-1] if case.replicas > 1 or case.backend == "serial"]
cases = pytest.mark.parametrize("case", daily(BACKEND_CASES, DAILY.__contains__), ids=str)
Start = Callable[..., tuple[Execution, Path]]


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory, forkery: Forkery) -> Start:
    """Run a case once for all questions about the same run."""

    @cache
    def run(case: Case, workload: str) -> tuple[Execution, Path]:
        run_dir = tmp_path_factory.mktemp(f"{case}-{workload}")
        spec = case.spec(f"tests.contract.linear:{workload}")
        site = dataclasses.replace(Site.here(), root=str(HERE / "combining"))
        if workload != "linear":  # one that fails: only what trains must have been fresh
            site = dataclasses.replace(site, python=forkery.python)
        return execute(make_plan(spec, run_dir=run_dir, site=site), deadline_s=DEADLINE_S), run_dir

    return run


def trained(start: Start, case: Case) -> tuple[tuple[RunRecord, ...], Path]:
    """Records of the processes that train or coordinate, and the folder of the run."""
    execution, run_dir = start(case, "linear")
    assert execution.outcome.completed, f"{execution.outcome}\n" + "\n".join(execution.last_lines)
    return tuple(r for r in execution.records if r.role != "server"), run_dir


@cases
def test_each_row_is_fed_once_in_an_epoch(start: Start, case: Case) -> None:
    """Each epoch has the rows of the data, in the order in which the serial run is fed them."""
    records, _ = trained(start, case)
    serial, _ = trained(start, BACKEND_CASES[0])

    for record in records:
        assert [epoch.examples for epoch in record.epochs] == [NUM_TRAIN] * EPOCHS
        for epoch, wanted in zip(record.epochs, serial[0].epochs, strict=True):
            assert epoch.ledger is not None
            assert epoch.ledger.rows == NUM_TRAIN
            assert epoch.ledger == wanted.ledger or case.backend == "parameter_server"


@cases
def test_a_process_tells_what_it_costs_to_watch(start: Start, case: Case) -> None:
    """Four float64 weights are 32 bytes; one process of a host reads what the host sent."""
    records, _ = trained(start, case)

    for record in records:
        assert record.gradient_bytes == 4 * 8
        assert record.clock_s_per_step is not None
        assert record.clock_s_per_step > 0
        for epoch in record.epochs:
            assert ("lo" in epoch.sent_bytes) == (record.is_chief or record.rank == 0)


@cases
def test_weights_equal_sgd_by_hand(start: Start, case: Case) -> None:
    """Two epochs end at the weights that NumPy finds on the same global batches."""
    if not case.synchronous:
        pytest.skip("asynchronous with several workers: the order of updates is open")
    _, run_dir = trained(start, case)

    kernel, bias = load_weights(run_dir / "model.keras")

    expected_kernel, expected_bias = sgd_by_hand()
    np.testing.assert_allclose(kernel, expected_kernel, rtol=RELATIVE)
    np.testing.assert_allclose(bias, expected_bias, rtol=RELATIVE)


@cases
def test_validation_counts_every_example(start: Start, case: Case) -> None:
    """Loss and metric after the last epoch are NumPy's over all 7 held-out examples."""
    from tests.contract.linear import data

    records, run_dir = trained(start, case)

    kernel, bias = load_weights(run_dir / "model.keras")
    x, y = data(NUM_VALIDATION, 1)
    error = x @ kernel + bias - y
    for record in records:
        assert record.epochs[-1].validation["loss"] == pytest.approx(
            float(np.mean(error**2)), rel=RELATIVE
        )
        assert record.epochs[-1].validation["mae"] == pytest.approx(
            float(np.mean(np.abs(error))), rel=RELATIVE
        )


@cases
def test_all_start_from_the_same_weights(start: Start, case: Case) -> None:
    """The initial weights of every process are the constants that the model asks for."""
    from tests.contract.linear import INITIAL_KERNEL

    records, _ = trained(start, case)

    expected = hashlib.sha256(INITIAL_KERNEL.tobytes() + np.zeros(1).tobytes()).hexdigest()
    assert {record.initial_digest for record in records} == {expected}


@cases
def test_replicas_end_with_equal_weights(start: Start, case: Case) -> None:
    """The final weights are the same bytes in every process."""
    records, _ = trained(start, case)

    assert len({record.final_digest for record in records}) == 1


@cases
def test_every_process_knows_its_place(start: Start, case: Case) -> None:
    """Ranks are 0…size-1, one process is chief, and all agree on the numbers."""
    answers = combined(start, case)

    holding = case.replicas if len(answers) > 1 else int(answers[0]["size"])
    assert sorted(int(a["rank"]) for a in answers) == list(range(len(answers)))
    assert [bool(a["is_chief"]) for a in sorted(answers, key=lambda a: int(a["rank"]))] == [
        True,
        *[False] * (len(answers) - 1),
    ]
    assert {int(a["size"]) for a in answers} == {holding}
    assert {int(a["num_replicas"]) for a in answers} == {case.replicas}


@cases
def test_values_are_combined_over_processes(start: Start, case: Case) -> None:
    """Sum, mean, maximum and broadcast are what NumPy makes of all ranks' values."""
    answers = combined(start, case)

    values = np.array([np.arange(3.0) + rank for rank in range(len(answers))])
    for answer in answers:
        np.testing.assert_array_equal(answer["sum"], values.sum(axis=0))
        np.testing.assert_allclose(answer["mean"], values.mean(axis=0), rtol=RELATIVE)
        np.testing.assert_array_equal(answer["max"], values.max(axis=0))
        if len(answers) > 1 or int(answer["size"]) == 1:
            np.testing.assert_array_equal(answer["from_first"], values[0])
        assert int(answer["scalar"]) == sum(range(1, len(answers) + 1))


@cases
def test_a_users_exception_surfaces(start: Start, case: Case) -> None:
    """Each record is of the user's error, and its log shows the traceback.

    horovodrun ends the other ranks as soon as one has failed, so a slower one has no record.
    """
    execution, run_dir = start(case, "raises")

    assert execution.outcome.kind == "failed"
    assert execution.outcome.error_class == "ZeroDivisionError"
    assert "the user's own mistake" in execution.outcome.reason
    training = [record for record in execution.records if record.role != "server"]
    assert training
    for record in training:
        assert record.outcome.error_class == "ZeroDivisionError"
        log = (run_dir / "logs" / f"{record.task}.log").read_text()
        assert "Traceback" in log
        assert "linear.py" in log
        assert "the user's own mistake" in log


@cases
def test_only_the_chief_writes(start: Start, case: Case) -> None:
    """One model, one checkpoint and one TensorBoard log, whatever the number of processes."""
    _, run_dir = trained(start, case)

    written = sorted(
        str(path.relative_to(run_dir))
        for path in run_dir.rglob("*")
        if path.is_file()
        and path.relative_to(run_dir).parts[0] not in ("records", "progress", "logs", "answers")
    )
    events = [name for name in written if "tfevents" in name]
    folders = [str(Path(name).parent) for name in events]
    assert folders == ["tensorboard/train", "tensorboard/validation"]
    assert [name for name in written if name not in events] == [
        "checkpoint.before.npz",
        "checkpoint.best.npz",
        "checkpoint.npz",
        "model.keras",
        "spec.json",
    ]


def test_the_model_loads_without_ringside_and_horovod(start: Start, tmp_path: Path) -> None:
    """model.keras of a Horovod run opens in a process that can import neither."""
    case = next(c for c in BACKEND_CASES if c.backend == "horovod" and c.replicas > 1)
    _, run_dir = trained(start, case)
    program = (
        "import os, sys; os.environ['TF_USE_LEGACY_KERAS'] = '1'\n"
        "sys.modules.update(horovod=None, ringside=None, ringside_core=None, trainers=None)\n"
        "import tensorflow as tf\n"
        f"model = tf.keras.models.load_model({str(run_dir / 'model.keras')!r})\n"
        "print(model.predict([[1.0, 2.0, 3.0]], verbose=0).shape)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.stdout.strip() == "(1, 1)", done.stderr


def combined(start: Start, case: Case) -> list[dict[str, Any]]:
    """What each process that holds replicas (or coordinates them) answered."""
    _, run_dir = trained(start, case)
    return [dict(np.load(path)) for path in sorted((run_dir / "answers").iterdir())]


def load_weights(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Kernel and bias of the saved model."""
    from ringside_core.keras import tf

    kernel, bias = tf.keras.models.load_model(path).get_weights()
    return kernel, bias


def sgd_by_hand() -> tuple[np.ndarray, np.ndarray]:
    """Plain SGD on the mean squared error, on global batches in the order of the data."""
    from tests.contract.linear import INITIAL_KERNEL, LEARNING_RATE, data

    x, y = data(NUM_TRAIN, 0)
    kernel, bias = INITIAL_KERNEL.copy(), np.zeros(1)
    for _ in range(EPOCHS):
        for begin in range(0, NUM_TRAIN, GLOBAL_BATCH):
            rows = slice(begin, begin + GLOBAL_BATCH)
            error = x[rows] @ kernel + bias - y[rows]
            kernel = kernel - LEARNING_RATE * 2 * x[rows].T @ error / len(error)
            bias = bias - LEARNING_RATE * 2 * error.mean(axis=0)
    return kernel, bias
