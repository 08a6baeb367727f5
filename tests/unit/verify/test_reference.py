"""A serial reference that was not watched as planned is none: all arms could agree with it."""

import numpy as np
import pytest

from ringside.verify.reference import unseen
from ringside.verify.request import Case
from ringside_core.specs import RunSpec, Topology, backend_options
from tests.unit.verify.made_up import STEPS, trace

SPEC = RunSpec(
    backend="serial",
    options=backend_options("serial", {}),
    topology=Topology(),
    global_batch=3,
    epochs=2,
)


def test_a_reference_that_was_watched_as_planned_lacks_nothing() -> None:
    """Whatever was to be watched of it."""
    for watch in ("steps", "last", "ends"):
        case = Case(name="a", spec=SPEC, steps=STEPS, watch=watch)
        assert unseen(case, trace()) == ""


@pytest.mark.parametrize(
    ("watch", "lacking"),
    [
        ("steps", {"loss": np.zeros(0)}),
        ("last", {"final": {}}),
        ("ends", {"meta": {"updates": [3, 3]}}),
    ],
)
def test_a_training_that_nobody_watched_is_no_reference(
    watch: str, lacking: dict[str, object]
) -> None:
    """It made all its updates, and kept nothing of them."""
    case = Case(name="a", spec=SPEC, steps=STEPS, watch=watch)

    assert "not watched" in unseen(case, trace(**lacking))


def test_a_reference_of_fewer_updates_is_none() -> None:
    """Seven were planned."""
    assert "6 updates" in unseen(Case(name="a", spec=SPEC, steps=STEPS + 1), trace())
