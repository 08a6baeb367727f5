"""A Keras 3 model is certified like one of legacy Keras."""

from pathlib import Path
from typing import Any

import pytest

from ringside.verify.certify import certify
from ringside_core.specs import Certificate
from tests.verify.arms import GLOO, subject

HOW: dict[str, Any] = {
    "workload": f"{Path(__file__).with_name('keras3.py')}:workload",
    "global_batch": 24,
    "keras": 3,
    "trained_by": "loop",
}


@pytest.fixture(scope="module", name="certificates")
def certificates_(tmp_path_factory: pytest.TempPathFactory) -> tuple[Certificate, ...]:
    """Of ours, and of what Keras 3 does as shipped; from one look at the serial run.

    A third has no end in binary: what is divided in float32 shows with three replicas. Keras 3
    under every backend is in test_matrix.py.
    """
    arms = [
        subject("mirrored", 3, **HOW),
        subject("mirrored", 2, as_shipped=True, **HOW),
    ]
    return certify(arms, folder=tmp_path_factory.mktemp("keras3"))


@pytest.mark.timeout(600)
def test_it_is_certified(certificates: tuple[Certificate, ...]) -> None:
    """In float64 to 1e-10, each update by its size, resumed, as timed; random numbers tied."""
    certificate = certificates[0]

    assert certificate.passed, certificate.reason
    checks = {check.name: check for check in certificate.checks}
    assert checks["float64 parity"].tolerance == 1e-10
    assert checks["independent randomness"].passed
    layers = {one.layer.partition(" ")[0] for one in certificate.by_design}
    assert layers == {"dropout", "batch_normalization", "noise"}


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_tables_that_are_looked_up_once_for_all_examples(tmp_path: Path) -> None:
    """The gradients of their rows are added; those of words stand side by side, as in Keras."""
    how = {**HOW, "workload": HOW["workload"].replace(":workload", ":sentences")}
    arms = [subject("mirrored", 2, **how), subject("horovod", 2, GLOO, **how)]

    for certificate in certify(arms, folder=tmp_path):
        assert certificate.passed, certificate.reason


@pytest.mark.timeout(600)
def test_as_shipped_it_is_not_certified(certificates: tuple[Certificate, ...]) -> None:
    """It clips each replica's gradient by itself."""
    shipped = certificates[1]

    assert not shipped.passed
    assert "parts at update 1" in shipped.reason
