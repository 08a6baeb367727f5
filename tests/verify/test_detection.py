"""Every deliberate mistake is caught wherever it can be made, and no clean run is failed."""

from pathlib import Path

import pytest

from ringside.verify.detect import detect
from ringside.verify.mistakes import MISTAKES
from ringside_core.specs import ControlResult, DetectionMatrix
from tests.verify.arms import MPI, SYNCHRONOUS, subject

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("warm"),
]

ARMS = [
    *(subject(name, 2, options) for name, options in SYNCHRONOUS if options != MPI),
    subject("parameter_server", 2),
]


@pytest.fixture(scope="module", name="matrix")
def matrix_(tmp_path_factory: pytest.TempPathFactory) -> DetectionMatrix:
    """All mistakes in all arms: one start of processes for each arm."""
    return detect(ARMS, folder=tmp_path_factory.mktemp("detect"))


def result_of(matrix: DetectionMatrix, mistake: str, arm: str) -> ControlResult:
    """The one cell of the matrix."""
    (found,) = [r for r in matrix.results if (r.control, r.arm) == (mistake, arm)]
    return found


@pytest.mark.parametrize("arm", [one.arm.label for one in ARMS])
@pytest.mark.parametrize("mistake", [control.name for control in MISTAKES])
def test_a_mistake_is_caught(mistake: str, arm: str, matrix: DetectionMatrix) -> None:
    """Or cannot be made in that arm, for a reason that is told."""
    found = result_of(matrix, mistake, arm)

    assert found.caught is not False, found.by
    assert found.by


def test_no_clean_run_is_failed(matrix: DetectionMatrix) -> None:
    """At least 20 runs without a mistake."""
    assert matrix.clean_runs >= 20
    assert matrix.false_alarms == ()
    assert matrix.passed


def test_most_mistakes_can_be_made_everywhere(matrix: DetectionMatrix) -> None:
    """What cannot be made does not count: no arm may hide behind that."""
    for one in ARMS:
        made = [r for r in matrix.results if r.arm == one.arm.label and r.caught is not None]
        least = 12 if one.exact else 8

        assert len(made) >= least, one.arm.label


def test_an_arm_of_one_replica_is_left_out(tmp_path: Path) -> None:
    """It has nobody to disagree with; nothing is started."""
    matrix = detect([subject("one_device", 1)], folder=tmp_path)

    assert matrix.arms == ()
    assert not matrix.passed
    assert list(tmp_path.iterdir()) == []
