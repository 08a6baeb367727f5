"""Batch normalisation over the rows of all replicas (`synchronized=True`)."""

from pathlib import Path

import numpy as np
import pytest

from launch import execute, make_plan
from ringside_core.keras import tf
from tests.contract.cases import FAMILIES, Case
from tests.training.momentum import normalised, train_serial

pytestmark = pytest.mark.usefixtures("warm")


@pytest.mark.parametrize("case", FAMILIES, ids=str)
def test_synchronised_statistics_are_those_of_the_whole_batch(case: Case, tmp_path: Path) -> None:
    """As one replica computes them; under Horovod by backends/horovod_batch_norm.py.

    Weights and moving statistics; of batches of 6, 6, 6 and 2 rows.
    """
    _, weights = train_serial(tmp_path / "alone", trained=normalised)
    spec = case.spec("tests.training.momentum:normalised", save="all")

    execution = execute(make_plan(spec, run_dir=tmp_path / "run"), deadline_s=120.0)

    assert execution.outcome.completed, f"{execution.outcome}\n" + "\n".join(execution.last_lines)
    found = tf.keras.models.load_model(tmp_path / "run" / "model.keras").get_weights()
    for one, other in zip(found, weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-10)
