"""Training steps that their authors wrote give plain Keras' weights under every backend."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from launch import Site, execute, make_plan
from ringside_core.specs import PipelineOptions
from tests.contract.cases import Case
from tests.training.programs.models import BATCH, PROGRAMS, SIZES, numbers, plainly_trained

HERE = Path(__file__).parent
pytestmark = pytest.mark.usefixtures("warm")
CASES = [
    Case("serial", 1),
    Case("mirrored", 2),
    Case("mirrored", 3),
    Case("central_storage", 2),
    Case("multi_worker_mirrored", 2),
    Case("horovod", 2, {"controller": "gloo"}),
]
Answer = dict[str, np.ndarray]


@pytest.fixture(scope="module", params=CASES, ids=str)
def answer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Answer]:
    """What the chief of a backend wrote down, of all programs."""
    from ringside_core.keras import tf

    folder = tmp_path_factory.mktemp("programs")
    site = dataclasses.replace(Site.here(), root=str(HERE / "programs"))
    spec = request.param.spec("digits").replace(
        global_batch=BATCH, pipeline=PipelineOptions(shuffle=False)
    )
    execution = execute(make_plan(spec, run_dir=folder, site=site), deadline_s=240.0)
    assert execution.outcome.completed, f"{execution.outcome}\n" + "\n".join(execution.last_lines)
    tf.keras.backend.set_floatx("float64")
    yield dict(np.load(sorted(folder.glob("answer-*.npz"))[0]))
    tf.keras.backend.set_floatx("float32")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_trains_as_plain_keras_does(answer: Answer, name: str, size: int) -> None:
    """Last batches of one example and of four; no replica trains on padding."""
    head = f"{name} {size} "
    initial, final = (
        [answer[key] for key in answer if key.startswith(f"{head}{what} ")]
        for what in ("initial", "final")
    )

    expected, told = plainly_trained(name, size, initial, int(answer["seed"]))

    assert len(final) == len(expected)
    for one, other in zip(final, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
    assert {key.removeprefix(f"{head}told ") for key in answer if f"{head}told " in key} >= {*told}
    # Keras tells bare numbers of the last batch, and its own loss of each batch.
    by_example = name in ("trackers", "own compile", "by compute_loss")
    of_batch = {"judged", "fooled", "student_loss"}
    for key in {*told} - of_batch - (set() if by_example else {"loss"}):
        np.testing.assert_allclose(answer[f"{head}told {key}"], told[key], rtol=1e-10)


@pytest.mark.parametrize("size", SIZES)
def test_an_authors_evaluation_counts_each_example_once(answer: Answer, size: int) -> None:
    """A tracker, a metric and a bare number: means over all examples, by hand."""
    head = f"without weights {size} "
    weights = [answer[key] for key in answer if key.startswith(f"{head}final ")]
    x, y = numbers(size)
    hidden = np.tanh(x @ weights[0] + weights[1])
    error = hidden @ weights[2] + weights[3] - y

    expected = {"loss": (error**2).mean(), "mae": np.abs(error).mean(), "lean": error.mean()}

    found = {key.removeprefix(f"{head}val "): answer[key] for key in answer if f"{head}val " in key}
    assert {*found} == {*expected}
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-10)


def test_what_cannot_be_evaluated_is_not(answer: Answer) -> None:
    """No test_step, no call, or no validation data: no value, and no error."""
    assert not [
        key for key in answer if key.startswith(("players", "augmented")) and " val " in key
    ]
