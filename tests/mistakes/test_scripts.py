"""What `ringside verify` says of scripts: right ones, coupled ones, sums, and planted mistakes."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from launch import Site
from ringside.verify.certify import certify
from ringside.verify.subject import Subject
from ringside_core.specs import Certificate
from tests.mistakes.of_scripts import MISTAKES
from tests.nightly import daily
from tests.verify.arms import GLOO, subject

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.usefixtures("warm")]
HERE = Path(__file__).parent / "scripts"
STEPS = 8
# By day: of each check a mistake that it alone sees, under one stack.
BY_DAY = {
    "equal_shares": "mirrored",
    "begins_its_data_again": "horovod",
    "half_precision": "mirrored",
}
ASKED = [(name, arm) for name, (_, arms, _) in MISTAKES.items() for arm in arms]


def arm_of(script: str, backend: str, name: str = "no mistake") -> Subject:
    """An arm of two replicas; the folder of its processes says what is planted in them."""
    options = GLOO if backend == "horovod" else None
    found = subject(
        backend,
        2,
        options,
        workload=str(HERE / script),
        global_batch=8,
        epochs=2,
    )
    label = f"{name} in {backend} ×2"
    return Subject(found.arm.replace(label=label, group=name), found.spec)


@pytest.fixture(scope="module", name="certified")
def certified_(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], Certificate]:
    """The certificate of dense.py with a mistake, made with all others that are asked for."""
    asked = [
        tuple(vars(item)["callspec"].params[key] for key in ("name", "backend"))
        for item in request.session.items
        if item.path == Path(__file__) and "name" in vars(item).get("callspec", _NONE).params
    ]
    made: dict[str, Certificate] = {}
    here = Site.here

    def certificate_of(name: str, backend: str) -> Certificate:
        if not made:
            site = dataclasses.replace(here(), program="tests/mistakes/planted.py")
            arms = [arm_of("dense.py", b, f"planted-{n}") for n, b in asked]
            clean = arm_of("dense.py", "mirrored")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Site, "here", lambda: dataclasses.replace(site, run_id=here().run_id))
                found = certify([clean, *arms], folder=tmp_path_factory.mktemp("arms"), steps=STEPS)
            made.update({c.arm.label: c for c in found})
        right = made["no mistake in mirrored ×2"]
        assert right.passed, right.reason
        return made[f"planted-{name} in {backend} ×2"]

    return certificate_of


class _NONE:
    params: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("name", "backend"), daily(ASKED, lambda asked: BY_DAY.get(asked[0]) == asked[1])
)
def test_a_mistake_is_caught(
    name: str, backend: str, certified: Callable[[str, str], Certificate]
) -> None:
    """By its check; the same arm without it is certified."""
    certificate = certified(name, backend)

    failed = [check.name for check in certificate.checks if not check.passed]
    assert not certificate.passed
    assert MISTAKES[name][0] in failed, certificate.reason


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("coupled.py", "passed: The training step"),
        pytest.param("clipped.py", 'passed: gradients="tape"', marks=pytest.mark.nightly),
        ("summed.py", "float64 parity: the training step applies a sum"),
        ("unseeded.py", "the data differ from reading to reading"),
    ],
)
def test_what_a_script_is_told(script: str, says: str, tmp_path: Path) -> None:
    """Coupled rows are certified as data-parallel training defines them; a sum is not."""
    (found,) = certify([arm_of(script, "mirrored")], folder=tmp_path, steps=STEPS)

    rest = says.removeprefix("passed: ")
    said = found.coverage if found.passed else found.reason
    assert found.passed == says.startswith("passed"), said
    assert rest in said
