"""Workers of parameter servers train rows of the author's own batches: against plain Keras, NumPy.

One start of a coordinator, workers and servers trains everything; under each Keras.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.contract.cases import Case
from tests.training.answering import Answer, answers
from tests.training.workers.train import PROGRAMS

PROGRAM = Path(__file__).parent / "workers"
pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("warm")]
both = pytest.mark.parametrize("keras", [2, pytest.param(3, marks=pytest.mark.nightly)])
# Rows, those of a batch, and how they are drawn. Last batches of one row and of W + 1; orders that
# nobody has seeded.
COUNTED = [
    (9, 4, "ordered"),
    (11, 4, "ordered"),
    (9, 3, "whole"),
    (12, 4, "shuffled"),
    (120, 4, "grouped"),
]


@pytest.fixture(scope="module", name="said")
def said_(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a coordinator wrote down, by Keras and number of workers; started when first asked."""
    starts: dict[tuple[int, int], Answer] = {}

    def of(keras: int, workers: int) -> Answer:
        if (keras, workers) in starts:
            assert starts[keras, workers], "the first test says why"
            return starts[keras, workers]
        starts[keras, workers] = {}
        spec = Case("parameter_server", workers).spec("digits", keras=keras)
        asked: dict[str, Any] = {"programs": [*PROGRAMS], "counted": []}
        if workers > 1:
            asked = {"programs": [], "counted": COUNTED}
        folder = tmp_path_factory.mktemp(f"keras{keras}-{workers}")
        (starts[keras, workers],) = answers(PROGRAM, spec, folder, **asked)
        return starts[keras, workers]

    return of


def of(said: Answer, head: str) -> Answer:
    """The part of an answer whose names begin so."""
    return {key.removeprefix(head): value for key, value in said.items() if key.startswith(head)}


@both
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_worker_trains_as_plain_keras_does(said: Any, keras: int, name: str) -> None:
    """Weights, histories, calls of callbacks, evaluation before and after, predictions."""
    found, plain = (of(said(keras, 1), f"{name}: {who}: ") for who in ("workers", "plain"))

    assert {*found} == {*plain}
    for key, value in plain.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-12, atol=1e-12, err_msg=key)


@both
@pytest.mark.parametrize(("count", "batch", "drawn"), COUNTED)
def test_each_row_is_trained_once_in_an_epoch(
    said: Any, keras: int, count: int, batch: int, drawn: str
) -> None:
    """By one of two workers: its gradient ÷ the rows of its update is the mean over them."""
    found = of(said(keras, 2), f"{count} {drawn}: ")
    expected, updates = np.zeros(count), 0
    for first in range(0, count, batch):
        of_batch = np.arange(first, min(first + batch, count))
        for own in (of_batch[0::2], of_batch[1::2]):
            updates += bool(len(own))
            expected[own] += 2 / max(1, len(own))  # epochs

    np.testing.assert_allclose(found["applied"], expected, rtol=1e-12)
    assert found["updates"].tolist() == [updates, updates]
    assert found["rows"].tolist() == [count, count]


@both
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sequence", "workers run no Python of the script"),
        ("generator", "workers run no Python of the script"),
        ("function", "workers run no Python of the script"),
        ("placed", "Make the data outside of the scope"),
        ("endless", "Name it: steps_per_epoch=…"),
        ("unknown", "Name it: steps_per_epoch=…"),
        ("short", "as many batches as all epochs together"),
        ("eager", "Leave run_eagerly out of compile"),
    ],
)
def test_what_workers_cannot_do_is_refused(said: Any, keras: int, name: str, words: str) -> None:
    """In one sentence that says what to do."""
    assert words in str(of(said(keras, 1), "refused: ").get(name, "trained"))
