"""Each mistake of the catalogue, planted in an arm, is caught by the check that is there for it.

The arms of one workload are certified together, beside one serial run. An arm of the same kind
without a mistake is certified.
"""

import dataclasses
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from launch import Site
from ringside.verify.certify import certify
from ringside.verify.subject import Subject
from ringside_core.specs import Certificate
from tests.mistakes.catalogue import MISTAKES, Mistake
from tests.verify.arms import GLOO, subject

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
STEPS = 10
# Ringside's own checks end a training with these. Any other error is of the plant itself.
GUARDS = (
    *("ReplicasDifferError", "LedgerError", "DivergedError", "NothingTrainedError"),
    "RefusalError",
)


@dataclass(frozen=True)
class Case:
    """A mistake in an arm, or the same arm without it."""

    mistake: Mistake
    arm: str
    planted: bool

    @property
    def subject(self) -> Subject:
        """The arm; the folder of its processes is named after it (planted.py)."""
        backend, _, replicas = self.arm.partition(":")
        found = subject(
            backend,
            int(replicas or 2),
            GLOO if backend == "horovod" else None,
            workload=f"{Path(__file__).with_name('workloads.py')}:{self.mistake.workload}",
            **self.mistake.changes,
        )
        name = f"planted {self.mistake.name}" if self.planted else "no mistake"
        group = f"{name} in {backend}"
        label = f"{group} ×{found.replicas}"
        return Subject(found.arm.replace(label=label, group=group), found.spec)

    @property
    def beside(self) -> str:
        """Cases of which this is the same are certified together: they share a serial run."""
        own = self.mistake.name if self.planted and self.mistake.everywhere else ""
        size = self.arm if ":" in self.arm else ""
        return f"{own} {self.mistake.workload} {self.mistake.changes} {size}"


CASES = [Case(one, arm, planted=True) for one in MISTAKES.values() for arm in one.arms]
CLEAN = {
    f"{one.arm}-{one.beside}": dataclasses.replace(one, planted=False)
    for one in CASES
    if not one.mistake.everywhere
}


@pytest.fixture(scope="module", name="certified")
def certified_(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, warm: None
) -> Callable[[Case], Certificate]:
    """The certificate of a case; it is made with all others that are asked for beside it."""
    items = [item for item in request.session.items if item.path == Path(__file__)]
    asked: list[Case] = [vars(item)["callspec"].params["case"] for item in items]
    made: dict[str, dict[str, Certificate]] = {}
    here = Site.here

    def certificates_beside(case: Case) -> dict[str, Certificate]:
        subjects = [one.subject for one in asked if one.beside == case.beside]
        site = dataclasses.replace(here(), program="tests/mistakes/planted.py")
        if subjects[0].spec.keras == 3:  # forks have loaded legacy Keras (tests/warm.py)
            site = dataclasses.replace(site, python=sys.executable)
        everywhere = case.planted and case.mistake.everywhere
        folder = tmp_path_factory.mktemp("arms")
        if everywhere:  # the serial run too is in a folder that says so
            folder /= f"planted-{case.mistake.name}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Site, "here", lambda: dataclasses.replace(site, run_id=here().run_id))
            found = certify(subjects, folder=folder, steps=STEPS)
        return {one.arm.label: one for one in found}

    def certificate_of(case: Case) -> Certificate:
        if case.beside not in made:
            made[case.beside] = certificates_beside(case)
        return made[case.beside][case.subject.arm.label]

    return certificate_of


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            one,
            id=f"{one.mistake.name}-{one.arm}",
            marks=() if one.arm in one.mistake.quick else pytest.mark.nightly,
        )
        for one in CASES
    ],
)
def test_a_mistake_is_caught(case: Case, certified: Callable[[Case], Certificate]) -> None:
    """By its check, and not by an error of the plant."""
    certificate = certified(case)

    failed = [check.name for check in certificate.checks if not check.passed]
    assert not certificate.passed
    assert case.mistake.fails in failed or certificate.reason.startswith(case.mistake.fails)
    told = re.findall(r"\b[A-Z]\w*(?:Error|Exception|Died|Lost)\b", certificate.reason)
    assert all(name in GUARDS for name in told), certificate.reason


@pytest.mark.nightly
@pytest.mark.parametrize("case", CLEAN.values(), ids=lambda case: f"{case.beside}-{case.arm}")
def test_an_arm_without_a_mistake_is_certified(
    case: Case, certified: Callable[[Case], Certificate]
) -> None:
    """So what is caught above is the mistake."""
    certificate = certified(case)

    assert certificate.passed, certificate.reason
