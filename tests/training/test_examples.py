"""Every program of examples/ is trained by both families as plain Keras trains it."""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from launch.interrupts import Interrupts
from ringside.verify.cases import watched_spec
from ringside.verify.certify import certify
from ringside.verify.checks import reference_is_plain_keras
from ringside.verify.processes import Watched, run_request, side_by_side
from ringside.verify.request import PLAIN, Case, Request, case_folder
from ringside.verify.trace import Trace
from ringside_core.specs import RunSpec
from tests.contract.cases import FAMILIES
from tests.contract.cases import Case as Arm
from tests.nightly import daily
from tests.verify.arms import GLOO, subject

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("warm"),
]

ROOT = Path(__file__).resolve().parents[2]
FUNCTIONS = ("diffusion", "gan", "own_model", "vae")  # the others are scripts
SECOND = ("distillation", "fine_tune")  # two fits each
SCRIPTS = [p.stem for p in sorted((ROOT / "examples").glob("*.py")) if p.stem not in FUNCTIONS]
CASES = [*FUNCTIONS]
ARMS = {str(arm): arm for arm in FAMILIES}
STEPS, GLOBAL_BATCH = 4, 12
FIT = ("mirrored", "horovod")


def program(name: str) -> dict[str, Any]:
    """The workload of a case."""
    return {"workload": f"{ROOT / 'examples' / name}.py:workload"}


def cases(spec: RunSpec, names: set[str]) -> Iterator[Case]:
    """Two epochs of two updates of each program, the second one on a short batch."""
    serial = spec.backend == "serial"
    for name in (one for one in CASES if one in names):
        own = spec.replace(**program(name))
        yield Case(name=name, spec=own, steps=STEPS, plain=serial)


@pytest.fixture(scope="module", name="watched")
def watched_(
    asked: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Watched]:
    """Each family is started once, for all programs that are asked of it."""

    def watch(arm: Arm, interrupts: Interrupts) -> Watched:
        spec = watched_spec(arm.spec("digits", global_batch=GLOBAL_BATCH, save="record"))
        names = {one["name"] for one in asked if str(arm) in (one.get("label"), "serial-1")}
        request = Request(cases=tuple(cases(spec, names)))
        return run_request(request, spec, tmp_path_factory.mktemp("examples"), interrupts)

    arms = {"serial": Arm("serial", 1), **ARMS}
    found = side_by_side([partial(watch, arm) for arm in arms.values()])
    return dict(zip(arms, found, strict=True))


def is_daily(case: tuple[str, str]) -> bool:
    """Whether `make test` runs a program in an arm: each in one of them."""
    name, label = case
    return label == [*ARMS][CASES.index(name) % len(ARMS)]


@pytest.mark.parametrize(("name", "label"), daily(product(CASES, ARMS), is_daily))
def test_it_trains_as_without_distribution(
    watched: Mapping[str, Watched], name: str, label: str
) -> None:
    """All weights after all updates, in every process, to 1e-10 of the largest."""
    traces = watched["serial"].traces
    (serial,) = traces[name].values()
    arm = watched[label]

    assert set(arm.traces[name]) == set(arm.tasks)
    for trace in arm.traces[name].values():
        assert not trace.error
        assert trace.steps == serial.steps == STEPS
        assert set(trace.weights) == set(serial.weights)
        largest = max(np.abs(values[-1]).max() for values in serial.weights.values())
        for key, values in serial.weights.items():
            found, expected = trace.weights[key][-1], values[-1]
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10 * largest, err_msg=key)


@pytest.mark.parametrize("name", CASES)
def test_it_trains_as_in_plain_keras(watched: Mapping[str, Watched], name: str) -> None:
    """The serial run's weights change, and are those that plain Keras' own `fit` makes."""
    serial = watched["serial"]
    plain = Trace.read(case_folder(serial.folder, name) / PLAIN)
    (reference,) = serial.traces[name].values()

    check = reference_is_plain_keras(plain, reference)

    assert not reference.error
    assert check.passed, check.finding
    assert any((values[0] != values[-1]).any() for values in reference.weights.values())


@pytest.mark.parametrize(
    ("name", "fit", "backend"),
    daily(
        [(name, fit, b) for name in SCRIPTS for fit in (1, 2)[: 1 + (name in SECOND)] for b in FIT],
        lambda case: case in (("own_loop", 1, "mirrored"), ("script", 1, "horovod")),
    ),
)
def test_a_script_is_certified(name: str, fit: int, backend: str, tmp_path: Path) -> None:
    """Against plain Keras on the untouched program; coupled rows against the other stack."""
    options = {} if fit == 1 else {"fit": fit}
    workload = str(ROOT / "examples" / f"{name}.py")
    arm = subject(
        backend,
        2,
        GLOO if backend == "horovod" else None,
        workload=workload,
        workload_options=options,
        global_batch=GLOBAL_BATCH,
    )

    (found,) = certify([arm], folder=tmp_path, steps=STEPS)

    assert found.passed, found.reason
