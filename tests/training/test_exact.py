"""Every backend's metrics and predictions are those of plain Keras, in fresh processes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.contract.cases import GLOBAL_BATCH, Case
from tests.nightly import daily
from tests.training.answering import answers

HERE = Path(__file__).parent
RELATIVE = 1e-12
pytestmark = pytest.mark.usefixtures("warm")
CASES = [
    # One for each way of adding up; tests/verify holds every backend to the serial run.
    Case("mirrored", 2),
    Case("multi_worker_mirrored", 3),
    Case("parameter_server", 2),
    Case("horovod", 3, {"controller": "gloo"}),
]


@pytest.mark.parametrize("case", daily(CASES, lambda case: case in (CASES[0], CASES[-1])), ids=str)
def test_evaluation_and_prediction_are_those_of_plain_keras(case: Case, tmp_path: Path) -> None:
    """Two outputs, last batch of 1; a classifier, last batch of 5; in every process."""
    from ringside_core.keras import tf
    from tests.training.exact.models import SIZES, WORKLOADS
    from tests.training.exact.reference import plain_keras

    # The workload is any that exists: the program brings its own.
    found = answers(HERE / "exact", case.spec("digits"), tmp_path)

    tf.keras.backend.set_floatx("float64")
    for (name, workload_of), size in zip(WORKLOADS.items(), SIZES, strict=True):
        head = f"{name} "
        weights = listed(found[0], f"{head}weight ")
        values, predictions = plain_keras(workload_of(size), weights, GLOBAL_BATCH)
        trained = {f"train {k}": v for k, v in values.items() if k != "loss"}
        # A launcher hears of each step, so that no long evaluation is called hung. A worker of
        # a parameter server makes steps alone.
        alone = case.backend == "parameter_server"
        step = GLOBAL_BATCH // case.replicas if alone else GLOBAL_BATCH
        others = {"counted": size, "steps told": -(-size // step)}
        for answer in found:
            check(answer, head, {**values, **trained, **others}, predictions)


def listed(answer: dict[str, Any], head: str) -> list[np.ndarray]:
    """The arrays of one kind, in order."""
    return [answer[f"{head}{i}"] for i in range(sum(key.startswith(head) for key in answer))]


def check(
    answer: dict[str, Any], head: str, values: dict[str, float], predictions: list[np.ndarray]
) -> None:
    """One process's answers about one model."""
    kinds = (f"{head}weight ", f"{head}prediction ")
    keys = {k.removeprefix(head) for k in answer if k.startswith(head) and not k.startswith(kinds)}
    assert keys == set(values)
    for key, value in values.items():
        np.testing.assert_allclose(answer[f"{head}{key}"], value, rtol=RELATIVE, err_msg=head + key)
    found = listed(answer, f"{head}prediction ")
    assert [array.shape for array in found] == [array.shape for array in predictions]
    for array, expected in zip(found, predictions, strict=True):
        assert array.dtype == np.float64
        np.testing.assert_allclose(array, expected, rtol=RELATIVE, err_msg=head)
