"""Scripts that are killed, or asked to end, within an epoch end as those that no one broke off."""

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from launch import execute, make_plan
from launch.attempts import set_aside
from ringside_core.specs import AUTO
from tests.contract.cases import FAMILIES, Case
from tests.nightly import daily

SCRIPT = Path(__file__).parent / "scripts" / "broken_off.py"
FEEDS = {"arrays": "failed", "data": "preempted", "unknown": "failed", "repeated": "preempted"}
SERIAL = Case("serial", 1)
pytestmark = pytest.mark.usefixtures("warm")
Numbers = dict[str, dict[str, Any]]


def trained(case: Case, made: Path) -> tuple[Numbers, list[str]]:
    """What the script tells of each training, and how its attempts ended."""
    run_dir, ends = made / "run", list[str]()
    spec = case.spec(shlex.join([str(SCRIPT), str(made)]), global_batch=8, epochs=3)
    spec = spec.replace(save="all", checkpoint_steps=2, resume_from=AUTO)
    while not ends or (ends[-1] != "completed" and len(ends) <= len(FEEDS)):
        if ends:
            set_aside(run_dir)
        execution = execute(make_plan(spec, run_dir=run_dir), deadline_s=120.0)
        ends.append(execution.outcome.kind)
    assert ends[-1] == "completed", "\n".join([*ends, *execution.last_lines])
    return {name: json.loads((made / f"{name}.json").read_text()) for name in FEEDS}, ends


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Numbers:
    """A serial run that no one broke off."""
    made = tmp_path_factory.mktemp("whole")
    (made / "whole").touch()
    return trained(SERIAL, made)[0]


@pytest.fixture(scope="module", params=daily([SERIAL, *FAMILIES], FAMILIES.__contains__), ids=str)
def broken(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Numbers:
    """A run that was broken off in each of its trainings."""
    said, ends = trained(request.param, tmp_path_factory.mktemp("broken"))
    assert ends == [*FEEDS.values(), "completed"]
    return said


@pytest.mark.parametrize("feed", FEEDS)
def test_it_ends_as_the_unbroken_one(unbroken: Numbers, broken: Numbers, feed: str) -> None:
    """Weights, the metrics of the begun epoch and of the next one, and what callbacks learned."""
    whole, said = unbroken[feed], broken[feed]

    np.testing.assert_allclose(said["weights"], whole["weights"], rtol=1e-12, atol=1e-12)
    assert said["seen"] == whole["seen"]
    # Processes agree to end about once a second: it may be after the epoch.
    epochs = 1 if FEEDS[feed] == "preempted" and len(said["loss"]) == 1 else 2
    for name in ("loss", "mae", "val_loss"):
        np.testing.assert_allclose(said[name], whole[name][-epochs:], rtol=1e-12)
