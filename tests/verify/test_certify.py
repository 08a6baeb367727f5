"""Certificates of the default workload, of what must not pass, and of what cannot be certified."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ringside.verify.certify import certify
from ringside_core.specs import Certificate
from tests.nightly import daily
from tests.verify.arms import GLOO, subject

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("warm"),
]

WORKLOADS = Path(__file__).with_name("workloads.py")
EXACT = [
    subject("parameter_server", 1),
    subject("multi_worker_mirrored", 2),
    subject("horovod", 3, GLOO),
]  # test_zoo.py also asks central_storage, test_fresh_process.py one_device, others mirrored
SERVERS = subject("parameter_server", 2)
FEWER_UPDATES = subject("horovod", 2, {"controller": "gloo", "backward_passes_per_step": 2})


@pytest.fixture(scope="module", name="certificates")
def certificates_(
    asked: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Certificate]:
    """All that are asked for, from one look at the serial reference."""
    labels = {parameters.get("label") for parameters in asked}
    arms = [one for one in (*EXACT, SERVERS, FEWER_UPDATES) if one.arm.label in labels]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        made = certify(arms, folder=tmp_path_factory.mktemp("certify"))
    return {certificate.arm.label: certificate for certificate in made}


# Of the strategies, test_typed.py certifies mirrored.
@pytest.mark.parametrize(
    "label", daily([one.arm.label for one in EXACT], lambda label: label.startswith("horovod"))
)
def test_the_default_workload_is_certified(
    label: str, certificates: Mapping[str, Certificate]
) -> None:
    """In float64 within 1e-10 of the serial run, in float32 within 4e-5, and all else."""
    certificate = certificates[label]

    assert certificate.passed, certificate.reason
    assert certificate.kind == "exact"
    checks = {check.name: check for check in certificate.checks}
    assert set(checks) == {
        "float64 parity",
        "as timed",
        "resumed",
        "each update",
        "float32 single updates",
        "training ledger",
        "validation ledger",
        "each gradient once",
        *(["independent randomness"] if certificate.arm.replicas > 1 else []),
        "fed elements",
        "reference is plain Keras",
    }
    tolerances = {"float64 parity": 1e-10, "each update": 1e-8, "float32 single updates": 4e-5}
    for name, tolerance in tolerances.items():
        worst = checks[name].worst
        assert worst is not None
        assert worst.value is not None
        assert worst.value <= tolerance
    # Before the first update and after each of twenty.
    for name in ("float64 parity", "float32 single updates"):
        watched = [one.step for one in checks[name].by_step if one.kind == "weights"]
        assert watched == list(range(20 + 1))


@pytest.mark.nightly
@pytest.mark.parametrize("label", [SERVERS.arm.label])
def test_several_asynchronous_workers_are_certified_by_counting_and_convergence(
    label: str, certificates: Mapping[str, Certificate]
) -> None:
    """There is no one right result to compare with."""
    certificate = certificates[label]

    assert certificate.passed, certificate.reason
    assert certificate.kind == "statistical"
    assert {check.name for check in certificate.checks} == {
        "training ledger",
        "validation ledger",
        "each gradient once",
        "fed elements",
        "reference is plain Keras",
        "evaluation and predictions",
        "as timed",
        "convergence",
        "independent randomness",
        "one worker",
    }


@pytest.mark.nightly
def test_random_layers_and_amplified_rounding_are_certified(tmp_path: Path) -> None:
    """Dropout, untied too; and Adam on a gradient that is nothing but rounding."""
    arm = subject("horovod", 2, GLOO, workload=f"{WORKLOADS}:random_and_split", global_batch=12)

    (certificate,) = certify([arm], folder=tmp_path)

    assert certificate.passed, certificate.reason
    checks = {check.name: check for check in certificate.checks}
    found = checks["independent randomness"].finding
    assert found == "2 replicas draw different numbers in 1 layer and by tf.random, untied"


@pytest.mark.nightly
@pytest.mark.parametrize("label", [FEWER_UPDATES.arm.label])
def test_options_that_change_the_arithmetic_are_not_certified(
    label: str, certificates: Mapping[str, Certificate]
) -> None:
    """The reason says where and by how much they part; test_typed.py asks half precision."""
    certificate = certificates[label]

    assert not certificate.passed
    assert "parts at update" in certificate.reason


@pytest.mark.parametrize(
    ("function", "named"),
    [
        ("reads_the_batch", "BatchMean"),
        ("running_maximum", "highest"),
        ("draws_without_a_seed", "Lambda"),
    ],
)
def test_what_cannot_be_certified_is_named(function: str, named: str, tmp_path: Path) -> None:
    """A layer that reads the batch, a metric that cannot be summed, chance without a seed."""
    arm = subject("mirrored", 2, workload=f"{WORKLOADS}:{function}", global_batch=12)

    (certificate,) = certify([arm], folder=tmp_path)

    assert not certificate.passed
    assert named in certificate.reason
    assert not (tmp_path / "mirrored-x2").exists()  # nothing of the arm was started


@pytest.mark.nightly
def test_a_program_that_amplifies_rounding_is_certified_in_float64(tmp_path: Path) -> None:
    """What rounding does to its serial run is looked at, allowed for, and told."""
    (certificate,) = certify(
        [subject("mirrored", 2, workload=f"{WORKLOADS}:amplifying", global_batch=8)],
        folder=tmp_path,
        steps=8,
    )

    assert certificate.passed, certificate.reason
    checks = {check.name: check for check in certificate.checks}
    plain = checks["reference is plain Keras"]
    assert plain.worst and plain.worst.exceeds(1e-12)
    assert "of what rounding allows" in checks["float64 parity"].finding
    assert "in float64 to what rounding does" in certificate.coverage
