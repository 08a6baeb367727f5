"""Every program of examples/ is certified under both families."""

from pathlib import Path

import pytest

from ringside.certificates.certify import certify
from tests.nightly import daily
from tests.verify.arms import GLOO, subject

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("warm")]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SECOND = ("distillation", "fine_tune")  # two fits each
STEPS, GLOBAL_BATCH = 4, 12
FUNCTION = "own_model"  # the others are scripts
CASES = [
    (file, fit, backend)
    for file in sorted(EXAMPLES.glob("*.py"))
    for fit in (1, 2)[: 1 + (file.stem in SECOND)]
    for backend in ("mirrored", "horovod")
]


@pytest.mark.parametrize(
    ("file", "fit", "backend"),
    daily(CASES, lambda case: (case[0].stem, *case[1:]) == ("own_loop", 1, "mirrored")),
    ids=lambda value: getattr(value, "stem", str(value)),
)
def test_an_example_is_certified(file: Path, fit: int, backend: str, tmp_path: Path) -> None:
    """Against plain Keras on the untouched program; coupled rows against the other stack."""
    arm = subject(
        backend,
        2,
        GLOO if backend == "horovod" else None,
        workload=f"{file}:workload" if file.stem == FUNCTION else str(file),
        workload_options={} if fit == 1 else {"fit": fit},
        global_batch=GLOBAL_BATCH,
    )

    (found,) = certify([arm], folder=tmp_path, steps=STEPS)

    assert found.passed, found.reason
