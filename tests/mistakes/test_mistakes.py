"""Each mistake of the catalogue, planted in an arm, is caught by the check that is there for it.

The arms of one program are certified together. The same arms without a mistake are certified.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringside.certificates.certify import certify
from ringside.certificates.subject import Subject
from ringside_core.specs import Certificate
from tests.mistakes.catalogue import BOTH, MISTAKES, WORKERS
from tests.nightly import daily, nightly
from tests.verify.arms import GLOO, subject
from tests.warm import started_with

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.usefixtures("warm")]
HERE = Path(__file__).parent
STEPS = 8
CLEAN = ""
# Ringside's own checks end a training with these. Any other error is of the plant itself.
GUARDS = {"ReplicasDifferError", "DivergedError", "RefusalError"}
EXACT = {
    *("training ledger", "float64 parity", "each update", "as timed"),
    *("resumed", "float32 single updates", "evaluation", "reference is plain Keras"),
}
IN_TURN = {
    *("training ledger", "counted updates", "float64 parity", "each update", "resumed"),
    *("evaluation", "reference is plain Keras", "one worker"),
}
TOLERANCES = {"float64 parity": 1e-10, "each update": 1e-8, "float32 single updates": 4e-5}
# Nightly: those in which the reducer is another, a replica has a third, or there is one.
OTHERS = (
    *("one_device:1", "central_storage", "multi_worker_mirrored"),
    *("horovod:3", "parameter_server:1"),
)
ASKED = [(name, arm) for name, found in MISTAKES.items() for arm in found.arms]
PROGRAMS = sorted({found.program for found in MISTAKES.values()})


def program_of(name: str) -> str:
    """The function of a program of the catalogue."""
    return str(HERE / (name if ":" in name else f"programs.py:{name}"))


def arm_of(workload: str, backend: str, name: str = CLEAN, **changes: Any) -> Subject:
    """An arm; the folder of its processes is named after it (planted.py)."""
    backend, _, replicas = backend.partition(":")
    options = GLOO if backend == "horovod" else None
    # With executions of two steps, the training that is not watched is traced by itself.
    executed = 1 if backend in WORKERS or "keras" in changes else 2
    how = {"global_batch": 8, "epochs": 2, "steps_per_execution": executed, **changes}
    given = {"workload": workload, **how}
    found = subject(backend, int(replicas or 2), options, **given)
    group = f"planted-{name} in {backend}" if name else f"no mistake in {backend}"
    label = f"{group} ×{found.replicas}"
    return Subject(found.arm.replace(label=label, group=group), found.spec)


def beside(name: str) -> tuple[str, str]:
    """Mistakes of which this is the same are certified together."""
    return MISTAKES[name].program, str(MISTAKES[name].changes)


@pytest.fixture(scope="module", name="certified")
def certified_(
    asked: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], Certificate]:
    """The certificate of a mistake in an arm, made with all others that are asked for beside it."""
    made: dict[str, Certificate] = {}

    def subject_of(name: str, arm: str) -> Subject:
        found = MISTAKES[name]
        return arm_of(program_of(found.program), arm, name, **found.changes)

    def certificate_of(name: str, arm: str) -> Certificate:
        label = subject_of(name, arm).arm.label
        if label not in made:
            pairs = [(each["name"], each["arm"]) for each in asked if "name" in each]
            arms = [subject_of(*pair) for pair in pairs if beside(pair[0]) == beside(name)]
            with started_with(arms[0].spec.keras, program="tests/mistakes/planted.py"):
                found = certify(arms, folder=tmp_path_factory.mktemp("arms"), steps=STEPS)
            made.update({c.arm.label: c for c in found})
        return made[label]

    return certificate_of


@pytest.mark.parametrize(
    ("name", "arm"), daily(ASKED, lambda asked: MISTAKES[asked[0]].daily == asked[1])
)
def test_a_mistake_is_caught(
    name: str, arm: str, certified: Callable[[str, str], Certificate]
) -> None:
    """By its check."""
    certificate = certified(name, arm)

    failed = [check.name for check in certificate.checks if not check.passed]
    assert not certificate.passed
    assert MISTAKES[name].fails in failed, certificate.reason
    errors = re.findall(r"\b[A-Z]\w*(?:Error|Exception)\b", certificate.reason)
    assert set(errors) <= GUARDS, certificate.reason


@pytest.mark.parametrize(
    ("program", "backends"),
    [
        ("dense", (*BOTH, *WORKERS)),
        nightly("dense", OTHERS),
        *(nightly(program, BOTH) for program in PROGRAMS if program != "dense"),
    ],
)
def test_an_arm_without_a_mistake_is_certified(
    program: str, backends: tuple[str, ...], tmp_path: Path
) -> None:
    """So what is caught above is the mistake."""
    how: dict[str, Any] = {"keras": 3} if "keras3" in program else {}
    arms = [arm_of(program_of(program), backend, **how) for backend in backends]

    with started_with(arms[0].spec.keras):
        found = certify(arms, folder=tmp_path, steps=STEPS)

    for certificate in found:
        assert certificate.passed, certificate.reason
        if program == "dense":
            asked_all(certificate)


def asked_all(certificate: Certificate) -> None:
    """Every check, by its tolerance; of several asynchronous workers, those that have an answer."""
    checks = {check.name: check for check in certificate.checks}
    for name, tolerance in TOLERANCES.items():
        if name in checks:
            worst = checks[name].worst
            assert worst is not None
            assert worst.value is not None
            assert worst.value <= tolerance
    if certificate.spec.backend in WORKERS and certificate.arm.replicas > 1:
        assert certificate.kind == "in turn"
        assert set(checks) == IN_TURN
        # Twice: each epoch has 3 batches of 8 rows for two workers, then 1 row for one of them; and
        # once, as timed: 3 of them, and 3 rows for two.
        said = checks["counted updates"].finding
        assert said.startswith(f"{2 * (3 * 2 + 1) + 3 * 2 + 2} updates")
        assert "updates that do not wait for each other" in certificate.coverage
        return
    assert certificate.kind == "exact"
    assert set(checks) == EXACT
    # Before the first update and after each.
    for name in ("float64 parity", "float32 single updates"):
        watched = [found.step for found in checks[name].by_step if found.kind == "weights"]
        assert watched == list(range(STEPS + 1))


@pytest.mark.parametrize(
    ("script", "says"),
    [
        pytest.param("clipped.py", 'passed: gradients="tape"', marks=pytest.mark.nightly),
        pytest.param(
            "contrastive_sum.py", "the training step applies a sum", marks=pytest.mark.nightly
        ),
        ("unseeded.py", "the data differ from reading to reading"),
    ],
)
def test_what_a_script_hears(script: str, says: str, tmp_path: Path) -> None:
    """Coupled rows are certified as data-parallel training defines them; a sum is not."""
    arm = arm_of(str(HERE / "scripts" / script), "mirrored")
    (found,) = certify([arm], folder=tmp_path, steps=STEPS)

    rest = says.removeprefix("passed: ")
    said = found.coverage if found.passed else found.reason
    assert found.passed == says.startswith("passed"), said
    assert rest in said
