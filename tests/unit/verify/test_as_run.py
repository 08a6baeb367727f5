"""What is run unwatched or in two parts, judged on arrays with known differences."""

from typing import Any

import numpy as np
import pytest

from ringside.verify.as_run import as_timed, resumed
from ringside.verify.trace import Trace
from tests.unit.verify.made_up import EPOCHS, NUM_TRAIN, STEPS, ledger_of, trace

PER_EPOCH = STEPS // EPOCHS
TASKS = ("rank-0",)
SLOT = "002 v/dense/kernel"


def unwatched(**changes: Any) -> Trace:
    """The training of `trace`, of which only the end was seen."""
    whole = trace()
    only_end: dict[str, Any] = {
        "weights": {},
        "slots": {name: rows[-1:] for name, rows in whole.slots.items()},
        "loss": np.zeros(0),
        "replica_gap": np.zeros(1),
        "fed": np.zeros((0, 0, 0, 0)),
        "before": {},
        "predictions": {},
    }
    return trace(**{**only_end, **changes})


def test_an_unwatched_training_that_ends_alike_passes() -> None:
    """All six updates are told."""
    check = as_timed({"rank-0": unwatched()}, trace(), tasks=TASKS)

    assert check.passed, check.finding
    assert check.name == "as timed"
    assert "6 updates" in check.finding


@pytest.mark.parametrize(
    ("attribute", "name"),
    [
        ("final", "000 dense/kernel"),
        ("slots", SLOT),
        ("metrics", "accuracy"),
        ("evaluation", "loss"),
    ],
)
def test_another_end_is_found(attribute: str, name: str) -> None:
    """By a part in a million, in one element; and a value that is not there at all."""
    values = getattr(unwatched(), attribute)
    off = {**values, name: values[name].copy()}
    off[name].flat[-1] *= 1 + 1e-6
    for wrong in (off, {key: value for key, value in values.items() if key != name}):
        check = as_timed({"rank-0": unwatched(**{attribute: wrong})}, trace(), tasks=TASKS)

        assert not check.passed
        assert name in check.finding


def test_replicas_that_end_apart_are_found() -> None:
    """In one process, whose first replica is right."""
    check = as_timed({"rank-0": unwatched(replica_gap=np.array([1e-3]))}, trace(), tasks=TASKS)

    assert "replicas" in check.finding
    assert not check.passed


def test_other_updates_or_examples_are_found() -> None:
    """One update less; one example twice and one never; no ledger; no trace."""
    once = ledger_of(range(NUM_TRAIN))
    wrong = {
        "updates": [PER_EPOCH, PER_EPOCH - 1],
        "ledgers": [once, ledger_of([0, 1, 2, 3, 4, 5, 5])],
    }
    for key, value in (*wrong.items(), ("ledgers", [once, None])):
        meta = {**trace().meta, key: value}
        assert not as_timed({"rank-0": unwatched(meta=meta)}, trace(), tasks=TASKS).passed
    assert not as_timed({}, trace(), tasks=TASKS).passed


@pytest.mark.parametrize("attribute", ["metrics", "slots", "final", "evaluation"])
def test_only_the_end_of_a_training_in_any_order_has_a_right_value(attribute: str) -> None:
    """Metrics and slots, such as the last gradient, depend on the order; the rest does not."""
    off = {name: value + 1.0 for name, value in getattr(unwatched(), attribute).items()}
    arm = {"rank-0": unwatched(**{attribute: off})}

    free = as_timed(arm, trace(), tasks=TASKS, exact=False)

    assert free.passed is (attribute in ("metrics", "slots"))
    assert not as_timed(arm, trace(), tasks=TASKS).passed


def interrupted(**changes: Any) -> Trace:
    """The training of `trace`, stopped and resumed between its two epochs."""
    meta = {**trace().meta, "around_saving": ["a", "a", "a"]}
    return trace(**{"meta": meta, **changes})


def cut(whole: Trace) -> tuple[Trace, Trace]:
    """Its two epochs, cut out by hand; the state between them is in both."""
    parts = []
    for epoch, (begin, end) in enumerate(((0, PER_EPOCH), (PER_EPOCH, STEPS))):
        meta = {
            key: value[epoch : epoch + 1] if isinstance(value, list) else value
            for key, value in whole.meta.items()
        }
        part = Trace(
            weights={name: rows[begin : end + 1] for name, rows in whole.weights.items()},
            slots={name: rows[begin : end + 1] for name, rows in whole.slots.items()},
            loss=whole.loss[begin:end],
            replica_gap=whole.replica_gap[begin:end],
            metrics={name: rows[epoch : epoch + 1] for name, rows in whole.metrics.items()},
            evaluation={name: rows[epoch : epoch + 1] for name, rows in whole.evaluation.items()},
            before=whole.before if epoch == 0 else {"loss": np.array(1.5)},
            final=whole.final if epoch else {},
            predictions=whole.predictions if epoch else {},
            fed=whole.fed[epoch : epoch + 1],
            meta=meta,
        )
        parts.append(part)
    return parts[0], parts[1]


def test_two_parts_are_one_training() -> None:
    """Nothing is twice, nothing is lost: it passes every comparison with the whole."""
    first, second = cut(trace())

    joined = first.then(second)

    assert vars(joined).keys() == vars(trace()).keys()
    for name, value in vars(trace()).items():
        found = getattr(joined, name)
        if name == "meta":
            assert found == value
        elif isinstance(value, dict):
            assert found.keys() == value.keys()
            for key, array in value.items():
                np.testing.assert_array_equal(found[key], array)
        else:
            np.testing.assert_array_equal(found, value)


def test_a_second_part_that_saw_nothing_tells_its_error() -> None:
    """What the first one saw is kept."""
    first, _ = cut(trace())

    joined = first.then(Trace(meta={"error": "ReplicasDifferError: apart"}))

    assert joined.error == "ReplicasDifferError: apart"
    assert joined.steps == PER_EPOCH
    assert joined.meta["updates"] == [PER_EPOCH]
    assert not resumed({"rank-0": joined}, trace(), tasks=TASKS).passed


def test_a_training_that_goes_on_where_it_was_passes() -> None:
    """Weights, slots, metrics and examples of its second epoch."""
    check = resumed({"rank-0": interrupted()}, trace(), tasks=TASKS)

    assert check.passed, check.finding
    assert check.name == "resumed"


@pytest.mark.parametrize("attribute", ["weights", "slots", "evaluation"])
def test_a_training_that_forgot_something_is_found(attribute: str) -> None:
    """A slot that begins at zero again; a weight, a result that is off; all right before."""
    off = {}
    for name, value in getattr(interrupted(), attribute).items():
        off[name] = value.astype(np.float64)
        off[name][1 if attribute == "evaluation" else PER_EPOCH + 1 :] *= 1 + 1e-6

    check = resumed({"rank-0": interrupted(**{attribute: off})}, trace(), tasks=TASKS)

    assert not check.passed
    assert "after the restart" in check.finding


def test_a_training_that_is_fed_its_first_epoch_again_is_found() -> None:
    """Although each example comes once."""
    fed = trace().fed.copy()
    fed[1] = fed[0][::-1]

    check = resumed({"rank-0": interrupted(fed=fed)}, trace(), tasks=TASKS)

    assert not check.passed


def test_saving_that_changes_something_is_found() -> None:
    """In one process of two."""
    meta = {**interrupted().meta, "around_saving": ["a", "a", "b"]}
    arm = {"rank-0": interrupted(), "rank-1": interrupted(meta=meta)}

    check = resumed(arm, trace(), tasks=("rank-0", "rank-1"))

    assert not check.passed
    assert "rank-1" in check.finding
