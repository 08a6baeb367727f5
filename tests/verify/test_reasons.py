"""A certificate says why a program's replicas differ from plain Keras, and what to write."""

from pathlib import Path

import pytest

from ringside.certificates.certify import certify
from tests.nightly import daily
from tests.verify.arms import subject

PROGRAMS = Path(__file__).parent / "reasons.py"
pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("warm")]

SAID = {
    "memory": "`table` of a batch is the same in every batch, and is divided",
    "clipped": 'with gradients="tape" in ringside.fit it equals plain Keras',
    "normalised": "held against horovod",  # a loss that is not reduced is no sum
    "evaluated": "all that is trained is plain Keras', and numbers that a step returns",
    "by_xla": "",  # a strategy trains without XLA, so only one of the two has hashes of rows
}


@pytest.mark.parametrize(("program", "said"), daily(SAID.items(), lambda one: one[0] == "memory"))
def test_it_says_why(program: str, said: str, tmp_path: Path) -> None:
    """What the program does is named; one that only looks unlike plain Keras is certified."""
    arm = subject("mirrored", 2, workload=f"{PROGRAMS} {program}", global_batch=4)

    (certificate,) = certify([arm], folder=tmp_path, steps=4, quickly=True)

    assert certificate.passed == (program not in ("clipped", "evaluated")), certificate.reason
    assert said in certificate.reason + str(certificate.by_design)
