"""The gate passes what is equal within rounding, and nothing else; and says where it parts."""

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ringside.certificates.gate import TOLERANCE, parity
from ringside.certificates.trace import Trace
from ringside_core.specs import RefusalError
from tests.unit.verify.made_up import STEPS, trace


def changed(change: Callable[[Trace], None]) -> dict[str, Trace]:
    """Two processes, of which the second saw something else."""
    other = copy.deepcopy(trace())
    change(other)
    return {"rank-0": trace(), "rank-1": other}


def grow(array: np.ndarray, where: tuple[int, ...], by: float) -> None:
    """Change one element by a share of the array's largest."""
    array[where] += by * np.max(np.abs(array))


CHANGES: dict[str, tuple[str, int, Callable[[Trace], None]]] = {
    "a weight": ("weights", 4, lambda t: grow(t.weights["000 dense/kernel"], (4, 1), 1e-8)),
    "an initial weight": ("weights", 0, lambda t: grow(t.weights["000 dense/kernel"], (0, 3), 0.1)),
    "a final weight": ("weights", STEPS, lambda t: grow(t.final["000 dense/kernel"], (1, 1), 1e-8)),
    "a first moment": ("slots", 2, lambda t: grow(t.slots["001 m/dense/kernel"], (2, 0), 1e-8)),
    "a tiny second moment": (
        "slots",
        3,
        lambda t: grow(t.slots["002 v/dense/kernel"], (3, 0), 1e-8),
    ),
    "the count of updates": ("slots", 6, lambda t: grow(t.slots["000 iteration"], (6, 0), 1.0)),
    "a training metric": ("metrics", STEPS, lambda t: grow(t.metrics["accuracy"], (0,), 1e-8)),
    "an evaluation": ("evaluation", STEPS, lambda t: grow(t.evaluation["loss"], (1,), 1e-8)),
    "a first evaluation": ("evaluation", 0, lambda t: grow(t.before["loss"], (), 1e-8)),
    "a prediction": ("predictions", STEPS, lambda t: grow(t.predictions["output 0"], (4, 2), 1e-8)),
    "another replica": ("replicas", 3, lambda t: np.put(t.replica_gap, 2, 1e-8)),
}


def test_equal_traces_pass() -> None:
    """The deviation is zero before the first update and after each."""
    check = parity({"rank-0": trace(), "rank-1": trace()}, trace(), precision="float64")

    assert check.passed
    assert check.worst is not None
    assert check.worst.value == 0.0
    assert [one.step for one in check.by_step if one.kind == "weights"] == list(range(STEPS + 1))
    assert {one.kind for one in check.by_step} == {kind for kind, _, _ in CHANGES.values()}


@pytest.mark.parametrize("what", CHANGES)
def test_one_changed_number_fails(what: str) -> None:
    """In one process, in one place; the finding names kind, update and process."""
    kind, step, change = CHANGES[what]

    check = parity(changed(change), trace(), precision="float64")

    assert not check.passed
    assert check.worst is not None
    assert (check.worst.kind, check.worst.step) == (kind, step)
    assert check.worst.task == "rank-1"
    assert f"parts at update {step}" in check.finding


@pytest.mark.parametrize("what", CHANGES)
def test_not_a_number_fails(what: str) -> None:
    """NaN never equals anything, in any place."""
    kind, _, change = CHANGES[what]
    arm = changed(change)
    other = arm["rank-1"]
    for group in (other.weights, other.slots, other.final, other.metrics, other.predictions):
        for name, array in group.items():
            group[name] = array.astype(float)
    array = {
        "weights": other.weights["000 dense/kernel"],
        "slots": other.slots["001 m/dense/kernel"],
        "metrics": other.metrics["accuracy"],
        "evaluation": other.evaluation["loss"],
        "predictions": other.predictions["output 0"],
        "replicas": other.replica_gap,
    }[kind]
    array[...] = np.nan

    check = parity(arm, trace(), precision="float64")

    assert not check.passed
    assert any(one.value is None for one in check.by_step)


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize(("times", "passes"), [(0.9, True), (1.1, False)])
def test_the_tolerance_is_of_the_largest_of_its_kind(
    precision: str, times: float, passes: bool
) -> None:
    """The smaller bias is measured against the kernel, by hand on both sides of the limit."""
    reference = trace()
    largest = max(np.max(np.abs(array)) for array in reference.weights.values())
    other = trace()
    other.weights["001 dense/bias"][3, 0] += times * TOLERANCE[precision] * largest

    assert parity({"rank-0": other}, reference, precision=precision).passed is passes


def test_missing_updates_and_processes_fail() -> None:
    """Nothing recorded, a process that ended early, an update too few, a variable too many."""
    short = trace(replica_gap=trace().replica_gap[:-1])
    broken = trace(meta={**trace().meta, "error": "LedgerError: 19 of 20"})
    extra = trace(weights={**trace().weights, "002 more/kernel": np.zeros((STEPS + 1, 1))})

    assert not parity({}, trace(), precision="float64").passed
    two = ("rank-0", "rank-1")
    assert not parity({"rank-0": trace()}, trace(), precision="float64", tasks=two).passed
    assert (
        "5 updates, the reference 6" in parity({"a": short}, trace(), precision="float64").finding
    )
    assert "19 of 20" in parity({"a": broken}, trace(), precision="float64").finding
    assert not parity({"a": extra}, trace(), precision="float64").passed


@pytest.mark.parametrize(("times", "passed"), [(9.0, True), (11.0, False)])
def test_ten_times_what_rounding_does_is_allowed_for(times: float, passed: bool) -> None:
    """By kind, in float32."""
    rounded, arm, by = trace(), trace(), 1e-3
    grow(rounded.weights["000 dense/kernel"], (STEPS, 0), by)
    grow(arm.weights["000 dense/kernel"], (2, 1), times * by)

    check = parity({"a": arm}, trace(), precision="float32", rounded=rounded)

    assert check.passed == passed
    assert check.worst is not None
    assert check.worst.value == pytest.approx(times * by * 4e-5 / (10 * by + 4e-5), rel=1e-3)
    assert "4e-05 stands for 1e-02 of the largest weight" in check.finding


@pytest.mark.parametrize(
    ("rounding", "times", "step", "passed"),
    [
        (1e-9, 90.0, STEPS, True),
        (1e-9, 110.0, STEPS, False),
        (1e-9, 90.0, STEPS - 1, False),  # before rounding has grown
        (1e-12, 1e4, STEPS, False),
        (1e-5, 1.0, STEPS, False),
    ],
)
def test_rounding_that_grows_is_allowed_for_in_float64(
    rounding: float, times: float, step: int, passed: bool
) -> None:
    """Up to that update. The number is reported. More than float32 would round shows nothing."""
    rounded, arm = trace(), trace()
    scale = max(np.max(np.abs(values)) for values in trace().weights.values())
    rounded.weights["000 dense/kernel"][STEPS, 0] += rounding * scale
    arm.weights["000 dense/kernel"][step, 0] += times * rounding * scale

    check = parity({"a": arm}, trace(), precision="float64", rounded=rounded)

    assert check.passed == passed
    assert check.worst is not None
    assert check.worst.value == pytest.approx(times * rounding, rel=1e-3)
    assert ("shows nothing; fewer updates may" in check.finding) == (rounding == 1e-5)


@pytest.mark.parametrize(("examples", "passed"), [(1, True), (2, False)])
def test_one_example_more_that_is_right_is_chance(examples: int, passed: bool) -> None:
    """Two are not; nor is anything in a metric that counts no examples."""
    arm, right = trace(), trace()
    of_seven = np.array([3 / 7, 4 / 7], np.float32)
    right.metrics["accuracy"] = of_seven
    rounded = copy.deepcopy(right)
    arm.metrics["accuracy"] = of_seven + examples / right.meta["train_examples"]

    found = parity({"a": arm}, right, precision="float32", rounded=rounded)

    assert found.passed == passed
    assert not parity({"a": arm}, right, precision="float32").passed
    assert not parity({"a": arm}, right, precision="float64", rounded=rounded).passed
    arm, no_count = copy.deepcopy(right), {"mae": np.array([0.01, 0.02])}
    arm.metrics = {"mae": no_count["mae"] + 0.001}
    right.metrics = rounded.metrics = no_count
    assert not parity({"a": arm}, right, precision="float32", rounded=rounded).passed


def test_a_validation_without_examples_has_no_example_more() -> None:
    """A program without validation data, whose model has metrics."""
    right = trace()
    right.meta["validation_examples"] = [0, 0]
    right.before["accuracy"] = np.zeros(())

    assert parity({"a": right}, right, precision="float32", rounded=right).passed


def test_large_statistics_hide_no_weight() -> None:
    """What no optimizer updates is a kind of its own, in float64 too."""
    right, arm = trace(), trace()
    right.weights["001 dense/bias"] *= 1e9  # say, a variance of inputs up to 255
    right.meta["trained"] = {"000 dense/kernel": True, "001 dense/bias": False}
    arm.weights = {name: rows.copy() for name, rows in right.weights.items()}
    grow(arm.weights["000 dense/kernel"], (3, 2), 1e-8)

    assert not parity({"a": arm}, right, precision="float64").passed


def test_slots_of_several_optimizers_are_kinds_of_their_own() -> None:
    """The count of one optimizer's updates hides no moment of it."""
    right = trace()
    right.slots = {
        f"{name[:4]}{number}/{name[4:]}": rows.astype(np.float64)
        for number in (0, 1)
        for name, rows in right.slots.items()
    }
    arm = copy.deepcopy(right)
    grow(arm.slots["002 1/v/dense/kernel"], (3, 0), 1e-8)

    assert not parity({"a": arm}, right, precision="float64").passed


def test_a_trace_comes_back_as_it_was(tmp_path: Path) -> None:
    """Every array and fact; half a file is refused."""
    trace().write(tmp_path / "t.npz")

    found = Trace.read(tmp_path / "t.npz")

    assert parity({"rank-0": found}, trace(), precision="float64").passed
    assert found.meta["updates"] == trace().meta["updates"]
    half = (tmp_path / "t.npz").read_bytes()[:-200]
    (tmp_path / "half.npz").write_bytes(half)
    with pytest.raises(RefusalError, match=r"half\.npz"):
        Trace.read(tmp_path / "half.npz")
