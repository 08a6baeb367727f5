"""Workers of parameter servers train rows of the author's own batches: against plain Keras, NumPy.

One start of a coordinator, workers and servers trains everything; under each Keras.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from backends.tf_distribute.sharded_coordinator import _TurnQueue
from launch import execute, make_plan
from launch.site import ROOT
from tests.contract.cases import Case
from tests.training.scripts.workers import COUNTED, PROGRAMS, Answer
from tests.warm import started_with

SCRIPT = Path(__file__).parent / "scripts" / "workers.py"
pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("warm")]
both = pytest.mark.parametrize("keras", [2, pytest.param(3, marks=pytest.mark.nightly)])
STARTED: dict[str, tuple[int, dict[str, Any]]] = {
    "fitted": (1, {}),
    "counted": (2, {}),
    "free": (2, {"schedule": "free"}),
}


@pytest.fixture(scope="module", name="said")
def said_(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a process wrote down, by Keras and what it trained; started when first asked."""
    starts: dict[tuple[int, str], Answer] = {}

    def of(keras: int, kind: str) -> Answer:
        if (keras, kind) in starts:
            assert starts[keras, kind], "the first test says why"
            return starts[keras, kind]
        starts[keras, kind] = {}
        folder = tmp_path_factory.mktemp(f"keras{keras}-{kind}")
        words = [str(SCRIPT), str(folder / "numbers.npz"), kind]
        if kind == "plain":
            legacy = "1" if keras == 2 else "0"
            env = {**os.environ, "TF_USE_LEGACY_KERAS": legacy, "PYTHONPATH": str(ROOT)}
            subprocess.run([sys.executable, *words], env=env, check=True)
        else:
            case = Case("parameter_server", *STARTED[kind])
            spec = case.spec(shlex.join(words), keras=keras)
            rows, epochs = (5, 3) if kind == "fitted" else (4, 2)  # of its first fit
            spec = spec.replace(global_batch=rows, authors_batch=rows, epochs=epochs)
            with started_with(keras):
                execution = execute(make_plan(spec, run_dir=folder / "run"), deadline_s=300.0)
            assert execution.outcome.completed, "\n".join(execution.last_lines)
        starts[keras, kind] = dict(np.load(folder / "numbers.npz"))
        return starts[keras, kind]

    return of


def of(said: Answer, head: str) -> Answer:
    """The part of an answer whose names begin so."""
    return {key.removeprefix(head): value for key, value in said.items() if key.startswith(head)}


@both
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_worker_trains_as_plain_keras_does(said: Any, keras: int, name: str) -> None:
    """Weights, histories, calls of callbacks, evaluation before and after, predictions."""
    found, plain = (of(said(keras, kind), f"{name}: ") for kind in ("fitted", "plain"))

    assert {*found} == {*plain}
    for key, value in plain.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-12, atol=1e-12, err_msg=key)


@both
@pytest.mark.parametrize(("count", "batch", "drawn"), COUNTED)
def test_each_row_is_trained_once_in_an_epoch(
    said: Any, keras: int, count: int, batch: int, drawn: str
) -> None:
    """By one of two workers: its gradient ÷ the rows of its update is the mean over them."""
    found = of(said(keras, "counted"), f"{count} {drawn}: ")
    expected, updates = np.zeros(count), 0
    for first in range(0, count, batch):
        of_batch = np.arange(first, min(first + batch, count))
        for own in (of_batch[0::2], of_batch[1::2]):
            updates += bool(len(own))
            expected[own] += 2 / max(1, len(own))  # epochs

    np.testing.assert_allclose(found["applied"], expected, rtol=1e-12)
    assert found["updates"].tolist() == [updates, updates]
    assert found["rows"].tolist() == [count, count]
    assert found["stale updates"].tolist() == [updates, updates]


@both
def test_how_stale_an_update_is(said: Any, keras: int) -> None:
    """One worker waits with its update for that of the other, which waits for none."""
    assert of(said(keras, "counted"), "stale: ")["staleness"].tolist() == [[1, 1]]


def free_steps(*, in_turn: bool) -> list[tuple[str, list[str]]]:
    """What worker 1 and then worker 0 get of four steps, by the schedule."""
    turns = _TurnQueue(2, max_size=9)
    turns.in_turn = in_turn
    for name in "abcd":
        turns.put(SimpleNamespace(name=name))
    found = []
    for worker in (1, 0):
        turns.reader.worker, got = worker, []
        while not turns.empty():
            got.append(turns.get().name)
        found.append((str(worker), got))
    return found


def test_a_free_worker_takes_the_steps_of_others() -> None:
    """Its own come first; in turn it takes no others."""
    assert free_steps(in_turn=True) == [("1", ["b", "d"]), ("0", ["a", "c"])]
    assert free_steps(in_turn=False) == [("1", ["b", "d", "a", "c"]), ("0", [])]


@pytest.mark.nightly
@pytest.mark.parametrize("keras", [2, 3])
def test_a_free_worker_makes_the_updates_of_a_slow_one(said: Any, keras: int) -> None:
    """In turn each would make five in an epoch, and this would not end."""
    found = of(said(keras, "free"), "free: ")
    assert found["updates"].tolist() == [10, 10]
    assert found["made"].sum() == 20


@both
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sequence", "workers run no Python of the script"),
        ("generator", "workers run no Python of the script"),
        ("function", "workers run no Python of the script"),
        ("placed", "Make the data outside of ringside.scope()"),
        ("endless", "Give steps_per_epoch=…"),
        ("unknown", "Name it: steps_per_epoch=…"),
        ("short", "as many batches as all epochs together"),
        ("eager", "Leave run_eagerly out of compile"),
    ],
)
def test_what_workers_cannot_do_is_refused(said: Any, keras: int, name: str, words: str) -> None:
    """In one sentence that says what to do."""
    if keras == 3 and name == "short":
        words = "trained"  # by plain Keras too: it warns, and begins the data again
    assert words in str(of(said(keras, "fitted"), "refused: ").get(name, "trained"))
