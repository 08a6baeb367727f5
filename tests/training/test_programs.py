"""Under every backend and by `fit` and the loop: plain Keras' weights, whoever wrote the step.

One start of a backend's processes trains everything: programs with steps of their authors', and the
table of ways to train and precisions (programs/cells.py).
"""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringside_core.specs import PipelineOptions, capabilities_of
from tests.contract.cases import FAMILIES, Case
from tests.nightly import daily
from tests.training.answering import Answer, answers
from tests.training.programs.cells import CELLS, PRECISIONS, by_plain_keras
from tests.training.programs.models import BATCH, PROGRAMS, SIZES, numbers, plainly_trained

PROGRAM = Path(__file__).parent / "programs"
pytestmark = pytest.mark.usefixtures("warm")
SERIAL, MIRRORED, HOROVOD = Case("serial", 1), *FAMILIES
WORKERS = Case("multi_worker_mirrored", 2)
BOTH_WAYS = [*product(PROGRAMS, SIZES)]
# By `fit` and by the loop where that is cheap; with several processes each program by one of them.
ASKED = [
    *((case, *one) for case in (SERIAL, MIRRORED) for one in BOTH_WAYS),
    *(
        ((HOROVOD, WORKERS)[(place + way) % 2], name, size)
        for place, name in enumerate(PROGRAMS)
        for way, size in enumerate(SIZES)
    ),
]
FEWER = [Case("central_storage", 2), Case("one_device", 1), Case("parameter_server", 1), WORKERS]
# A precision is the model's; a backend shows in float64, and in what a loss scale makes it reduce.
CELLS_ASKED = [
    *((case, *cell) for case in (SERIAL, MIRRORED, HOROVOD) for cell in CELLS),
    *((case, *cell) for case in FEWER for cell in CELLS if cell[1] in ("float64", "mixed_float16")),
]


def program_is_daily(asked: tuple[Any, ...]) -> bool:
    """Each program by one way under Horovod, and by the other under mirrored."""
    case, name, size = asked
    return case == (HOROVOD, MIRRORED)[([*PROGRAMS].index(name) + [*SIZES].index(size)) % 2]


def cell_is_daily(asked: tuple[Any, ...]) -> bool:
    """Where a backend shows, under both families; other precisions without one."""
    case, _, precision = asked
    shows = precision in ("float64", "mixed_float16")
    return case in ((MIRRORED, HOROVOD) if shows else (SERIAL,))


_ANSWERS: dict[Case, Answer] = {}
_PLAIN: dict[Any, Any] = {}


@pytest.fixture(name="answer")
def answer_(
    request: pytest.FixtureRequest,
    asked: list[dict[str, Any]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Answer:
    """What the chief of a backend wrote down, of everything that is asked of it; started once."""
    case = request.param
    if case not in _ANSWERS:
        spec = case.spec("digits").replace(
            global_batch=BATCH, pipeline=PipelineOptions(shuffle=False)
        )
        folder = tmp_path_factory.mktemp("programs")
        of_case = [parameters for parameters in asked if parameters["answer"] == case]
        programs = [*dict.fromkeys((one["name"], one["size"]) for one in of_case if "name" in one)]
        cells = [(one["way"], one["precision"]) for one in of_case if "way" in one]
        _ANSWERS[case] = answers(PROGRAM, spec, folder, programs=programs, cells=cells)[0]
    return _ANSWERS[case]


@pytest.fixture
def _float64() -> None:
    from ringside_core.keras import tf

    tf.keras.backend.set_floatx("float64")


def once(function: Any, initial: list[np.ndarray], *asked: Any) -> Any:
    """What plain Keras makes of the same initial weights: most backends begin alike."""
    key = (function, *asked, b"".join(weight.tobytes() for weight in initial))
    if key not in _PLAIN:
        _PLAIN[key] = function(*asked, initial)
    return _PLAIN[key]


@pytest.mark.parametrize(
    ("answer", "case", "way", "precision"),
    daily([(case, case, *cell) for case, *cell in CELLS_ASKED], lambda one: cell_is_daily(one[1:])),
    ids=str,
    indirect=["answer"],
)
def test_each_cell_agrees_with_plain_keras(
    answer: Answer, case: Case, way: str, precision: str
) -> None:
    """Weights, loss, and the loss scale after an overflow in one replica; or a refusal."""
    head = f"{way}, {precision}: "
    found = {k.removeprefix(head): v for k, v in answer.items() if k.startswith(head)}
    if precision == "mixed_float16" and not capabilities_of(case.backend).loss_scale:
        words = "Mixed precision is not supported" if "script" in way else "Keras has no loss scale"
        assert words in str(found.pop("refused"))
        assert not found
        return
    initial = [found.pop(key) for key in sorted(found) if key.startswith("initial")]

    expected = once(by_plain_keras, initial, precision)

    assert {*found} == {*expected}
    if precision == "mixed_float16":
        assert expected["scale"] < 2**15  # it did overflow
    for key in {"iterations", "scale", "counter"} & {*found}:
        assert found.pop(key) == expected[key]
    bound = PRECISIONS[precision][1]
    for key, value in found.items():
        np.testing.assert_allclose(value, expected[key], rtol=bound, atol=bound, err_msg=key)


@pytest.mark.usefixtures("_float64")
@pytest.mark.parametrize(
    ("answer", "name", "size"), daily(ASKED, program_is_daily), ids=str, indirect=["answer"]
)
def test_it_trains_as_plain_keras_does(answer: Answer, name: str, size: int) -> None:
    """Last batches of one example and of four; no replica trains on padding."""
    head = f"{name} {size} "
    initial, final = (
        [answer[key] for key in answer if key.startswith(f"{head}{what} ")]
        for what in ("initial", "final")
    )

    expected, told = once(plainly_trained, initial, name, size, int(answer["seed"]))

    assert len(final) == len(expected)
    for one, other in zip(final, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
    assert {key.removeprefix(f"{head}told ") for key in answer if f"{head}told " in key} >= {*told}
    # Keras tells bare numbers of the last batch, and its own loss of each batch.
    by_example = name in ("trackers", "own compile", "by compute_loss")
    of_batch = {"judged", "fooled", "student_loss"}
    for key in {*told} - of_batch - (set() if by_example else {"loss"}):
        np.testing.assert_allclose(answer[f"{head}told {key}"], told[key], rtol=1e-10)


@pytest.mark.parametrize(
    ("answer", "name", "size"),
    daily([one for one in ASKED if one[1] == "without weights"], program_is_daily),
    ids=str,
    indirect=["answer"],
)
def test_an_authors_evaluation_counts_each_example_once(
    answer: Answer, name: str, size: int
) -> None:
    """A tracker, a metric and a bare number: means over all examples, by hand."""
    head = f"{name} {size} "
    weights = [answer[key] for key in answer if key.startswith(f"{head}final ")]
    x, y = numbers(size)
    hidden = np.tanh(x @ weights[0] + weights[1])
    error = hidden @ weights[2] + weights[3] - y

    expected = {"loss": (error**2).mean(), "mae": np.abs(error).mean(), "lean": error.mean()}

    found = {key.removeprefix(f"{head}val "): answer[key] for key in answer if f"{head}val " in key}
    assert {*found} == {*expected}
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-10)


@pytest.mark.parametrize(
    "answer",
    daily([SERIAL, MIRRORED, HOROVOD, WORKERS], (MIRRORED, HOROVOD).__contains__),
    ids=str,
    indirect=True,
)
def test_what_cannot_be_evaluated_is_not(answer: Answer) -> None:
    """No test_step, no call, or no validation data: no value, and no error."""
    assert not [
        key for key in answer if key.startswith(("players", "augmented")) and " val " in key
    ]
