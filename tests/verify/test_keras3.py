"""A Keras 3 model is certified like one of legacy Keras."""

from pathlib import Path
from typing import Any

import pytest

from ringside.certificates.certify import certify, peer_of
from tests.verify.arms import subject

HOW: dict[str, Any] = {
    "workload": f"{Path(__file__).with_name('keras3.py')}:workload",
    "global_batch": 24,
    "keras": 3,
}


@pytest.mark.timeout(600)
def test_it_is_certified(tmp_path: Path) -> None:
    """In float64 to 1e-10, each update by its size, resumed, as timed; its rows are coupled.

    A third has no end in binary: what is divided in float32 shows with three replicas.
    """
    (certificate,) = certify([subject("mirrored", 3, **HOW)], folder=tmp_path)

    assert certificate.passed, certificate.reason
    checks = {check.name: check for check in certificate.checks}
    assert checks["float64 parity"].tolerance == 1e-10
    assert len(certificate.splitting) == 1
    assert "which random numbers" in certificate.coverage


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_tables_that_are_looked_up_once_for_all_examples(tmp_path: Path) -> None:
    """Adam of Keras 3 squares slices one by one: each replica has its own of such a table."""
    how = {**HOW, "workload": HOW["workload"].replace(":workload", ":sentences")}

    (certificate,) = certify([subject("mirrored", 2, **how)], folder=tmp_path)

    assert not certificate.passed
    assert "couples no rows, and differs" in certificate.reason


def test_an_arm_of_several_updates_in_an_execution_has_a_peer() -> None:
    """A strategy of Keras 3 can make one: coupled rows are held against such an arm."""
    of_four = subject("horovod", 2, **HOW).spec.replace(steps_per_execution=4)

    peer = peer_of(of_four)

    assert (peer.backend, peer.topology.num_replicas, peer.steps_per_execution) == (
        "mirrored",
        2,
        1,
    )
