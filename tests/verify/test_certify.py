"""Certificates of the default workload under every backend, and of what must not pass."""

from collections.abc import Mapping
from typing import Any

import pytest

from ringside.verify.certify import certify
from ringside_core.specs import Certificate
from tests.nightly import daily
from tests.verify.arms import GLOO, subject

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("warm")]

SERVERS = subject("parameter_server", 2)
HALF = subject("horovod", 2, {**GLOO, "compression": "fp16"})
ARMS = [
    subject("one_device", 1),
    subject("mirrored", 2),
    subject("central_storage", 2),
    subject("multi_worker_mirrored", 2),
    subject("horovod", 3, GLOO),
    subject("parameter_server", 1),
]
EXACT = {
    *("training ledger", "float64 parity", "each update", "as timed"),
    *("resumed", "float32 single updates", "evaluation", "reference is plain Keras"),
}
IN_TURN = {
    *("training ledger", "counted updates", "float64 parity", "each update", "resumed"),
    *("evaluation", "reference is plain Keras", "one worker"),
}


@pytest.fixture(scope="module", name="certificates")
def certificates_(
    asked: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Certificate]:
    """All that are asked for, held against one training of plain Keras."""
    labels = {parameters.get("label") for parameters in asked}
    arms = [arm for arm in (*ARMS, SERVERS, HALF) if arm.arm.label in labels]
    made = certify(arms, folder=tmp_path_factory.mktemp("certify"))
    return {certificate.arm.label: certificate for certificate in made}


# Of the strategies, test_typed.py certifies mirrored.
@pytest.mark.parametrize(
    "label", daily([arm.arm.label for arm in ARMS], lambda label: label.startswith("horovod"))
)
def test_the_default_workload_is_certified(
    label: str, certificates: Mapping[str, Certificate]
) -> None:
    """In float64 within 1e-10 of plain Keras, in float32 within 4e-5, and all else."""
    certificate = certificates[label]

    assert certificate.passed, certificate.reason
    assert certificate.kind == "exact"
    checks = {check.name: check for check in certificate.checks}
    assert set(checks) == EXACT
    tolerances = {"float64 parity": 1e-10, "each update": 1e-8, "float32 single updates": 4e-5}
    for name, tolerance in tolerances.items():
        worst = checks[name].worst
        assert worst is not None
        assert worst.value is not None
        assert worst.value <= tolerance
    # Before the first update and after each of twenty.
    for name in ("float64 parity", "float32 single updates"):
        watched = [found.step for found in checks[name].by_step if found.kind == "weights"]
        assert watched == list(range(20 + 1))


@pytest.mark.parametrize("label", [SERVERS.arm.label])
def test_several_asynchronous_workers_are_certified_in_turn(
    label: str, certificates: Mapping[str, Certificate]
) -> None:
    """Where each update waits for the one before, they make those that plain Keras makes."""
    certificate = certificates[label]

    assert certificate.passed, certificate.reason
    assert certificate.kind == "in turn"
    checks = {check.name: check for check in certificate.checks}
    assert set(checks) == IN_TURN
    # Twice: each epoch has 9 batches of 48 rows for two workers, then 1 row for one of them; and
    # once, as timed: 9 of them, and 3 rows for two.
    assert checks["counted updates"].finding.startswith(f"{2 * (9 * 2 + 1) + 9 * 2 + 2} updates")
    assert "updates that do not wait for each other" in certificate.coverage


@pytest.mark.nightly
@pytest.mark.parametrize("label", [HALF.arm.label])
def test_options_that_change_the_arithmetic_are_not_certified(
    label: str, certificates: Mapping[str, Certificate]
) -> None:
    """The reason says where and by how much they part."""
    certificate = certificates[label]

    assert not certificate.passed
    assert "float32 single updates" in certificate.reason or "parts at" in certificate.reason
