"""A loss of the whole batch under every backend: `ringside.gather`."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from launch.interrupts import Interrupts
from ringside.verify.cases import watched_spec
from ringside.verify.gate import parity
from ringside.verify.processes import Watched, run_request, side_by_side
from ringside.verify.request import Case, Request
from ringside_core.keras import tf
from ringside_core.specs import RefusalError
from tests.nightly import daily
from tests.verify.arms import GLOO, subject
from trainers.gather import NOT_ON_PADDING, gather, gathering

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("warm")]
# The last batches are of 7 and of 3 examples: some replicas have part of theirs, or none.
GLOBAL_BATCH = 12
# Name, workload, its options, and whether the loss also depends on each replica's part.
CASES: tuple[tuple[str, str, dict[str, bool], bool], ...] = (
    ("pairs", "pairs", {}, False),
    ("function", "function", {}, False),
    ("normalised", "pairs", {"normalises": True}, True),
    ("without", "pairs", {"gathers": False}, False),
)
ARMS = {
    one.arm.label: one
    for one in (
        subject("mirrored", 2),
        subject("mirrored", 3),
        subject("central_storage", 2),
        subject("multi_worker_mirrored", 2),
        subject("multi_worker_mirrored", 3),
        subject("horovod", 2, GLOO),
        subject("horovod", 3, GLOO),
        subject("parameter_server", 2),
    )
}
SERVERS = "parameter_server ×2"


@pytest.fixture(scope="module", name="watched")
def watched_(
    asked: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Watched]:
    """Every arm that is asked for is started once; the serial run also makes parts."""

    def watch(label: str, interrupts: Interrupts) -> Watched:
        one = ARMS.get(label) or subject("serial", 1)
        made = []
        for name, workload, options, by_part in CASES:
            own = watched_spec(one.spec).replace(
                workload=f"tests.training.gathering:{workload}",
                workload_options=options,
                global_batch=GLOBAL_BATCH,
                epochs=2,
                precision="float64",
            )
            case = Case(name=name, spec=own, steps=None)
            sizes = (2, 3) if by_part and label == "serial" else ()
            parts = [case.replace(name=f"{name}-{n}", virtual_replicas=n) for n in sizes]
            made += [case, *parts]
        folder = tmp_path_factory.mktemp("gather")
        return run_request(Request(cases=tuple(made)), watched_spec(one.spec), folder, interrupts)

    labels = list(dict.fromkeys(["serial", *(one["label"] for one in asked if "label" in one)]))
    return dict(zip(labels, side_by_side([partial(watch, label) for label in labels]), strict=True))


@pytest.mark.parametrize("name", [name for name, *_ in CASES])
@pytest.mark.parametrize(
    "label",
    daily(
        [label for label in ARMS if label != SERVERS],
        lambda label: label.startswith(("mirrored", "horovod")) and label.endswith("3"),
    ),
)
def test_it_is_the_loss_of_the_whole_batch(
    label: str, name: str, watched: Mapping[str, Watched]
) -> None:
    """Losses, weights and evaluation, to 1e-10; without `gather` they are others."""
    by_part = name == "normalised"
    key = f"{name}-{ARMS[label].replicas}" if by_part else name
    (reference,) = watched["serial"].traces[key].values()
    arm = watched[label].traces[name]
    assert not reference.error, reference.error
    assert reference.steps == 6

    check = parity(arm, reference, precision="float64")

    assert check.worst is not None, check.finding
    if name == "without":
        assert check.worst.value is not None
        assert check.worst.value > 1e-3
    else:
        assert check.worst.value is not None, check.finding
        assert check.worst.value < 1e-10, check.finding


@pytest.mark.nightly
@pytest.mark.parametrize("label", [SERVERS])
def test_workers_with_updates_of_their_own_are_refused(
    label: str, watched: Mapping[str, Watched]
) -> None:
    """A worker of a parameter server does not wait for the others; nothing is trained."""
    for trace in watched[label].traces["pairs"].values():
        assert "RefusalError: ringside.gather needs replicas that make a step" in trace.error


def test_alone_it_returns_what_it_gets() -> None:
    """Also outside of any training."""
    x = tf.constant([[1.0], [2.0]])

    assert gather(x) is x


def test_it_is_refused_where_a_batch_may_hold_padding() -> None:
    """In Keras' own step."""
    with gathering(NOT_ON_PADDING), pytest.raises(RefusalError, match="may hold padding"):
        gather(tf.zeros([2, 1]))
