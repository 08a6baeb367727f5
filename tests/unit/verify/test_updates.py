"""An update is judged by its own size: what hides beside large weights does not hide here."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ringside.certificates.gate import TOLERANCE, judged, parity
from ringside.certificates.trace import Trace
from ringside.certificates.updates import each_update, may_be_chance, single_updates
from ringside_core.specs import Deviation
from tests.unit.verify.made_up import STEPS, trace

KERNEL, BIAS = "000 dense/kernel", "001 dense/bias"
RATE = 1e-4  # so small that an update is 10,000 times smaller than the largest weight
Sum = Callable[[NDArray[Any]], NDArray[Any]]


def half(gradients: NDArray[Any]) -> NDArray[Any]:
    """The mean of two replicas' gradients, after each was rounded to float16."""
    return gradients.astype(np.float16).astype(np.float32).mean(axis=0)


def right(gradients: NDArray[Any]) -> NDArray[Any]:
    """The mean of two replicas' gradients."""
    return gradients.mean(axis=0)


def total(gradients: NDArray[Any]) -> NDArray[Any]:
    """The sum."""
    return gradients.sum(axis=0)


def sgd(combined: Sum, dtype: type = np.float32, *, wrong_from: int = 0) -> Trace:
    """Plain SGD of two replicas, in NumPy; each update from the state of the right float32 run."""
    generator = np.random.default_rng(3)
    starts = {KERNEL: generator.normal(size=4), BIAS: np.zeros(2)}
    weights = {}
    for name, start in starts.items():
        gradients = generator.normal(size=(STEPS, 2, start.size)).astype(np.float32)
        state: NDArray[Any] = start.astype(np.float32)
        rows: list[NDArray[Any]] = [start.astype(dtype)]
        for update, gradient in enumerate(gradients.astype(dtype)):
            combine = combined if update >= wrong_from else right
            move: NDArray[Any] = (-RATE * combine(gradient)).astype(dtype)
            rows.append(state.astype(dtype) + move)
            state = state + (-RATE * right(gradients[update])).astype(np.float32)
        weights[name] = np.stack(rows).astype(dtype)
    return trace(weights=weights, slots={})


def test_a_gradient_in_half_precision_is_caught() -> None:
    """It is off by 1e-8 of the weights, which parity lets pass, and by 1e-4 of the update."""
    arm, reference, exact = sgd(half), sgd(right), sgd(right, np.float64)

    assert parity({"a": arm}, reference, precision="float32").passed
    assert not single_updates({"a": arm}, reference, exact, precision="float32").passed
    assert single_updates({"a": reference}, reference, exact, precision="float32").passed


def test_a_flip_of_one_update_is_chance_and_a_mistake_is_there_again() -> None:
    """Made once more from neighbouring states: off in both, in the same update, or no number."""
    reference, exact = sgd(right), sgd(right, np.float64)

    def flipped(update: int, by: float = 0.01 * RATE) -> Trace:
        found = sgd(right)
        found.weights[KERNEL][update, 0] += np.float32(by)
        return found

    def check(second: Trace | None, by: float = 0.01 * RATE) -> bool:
        again = None if second is None else ({"a": second}, reference)
        arm = {"a": flipped(3, by)}
        return single_updates(arm, reference, exact, precision="float32", again=again).passed

    assert not check(None)
    assert check(sgd(right))
    assert check(flipped(2))
    assert not check(flipped(3))
    assert not check(sgd(right), np.nan)
    assert not check(Trace(meta={"error": "it ended"}))


@pytest.mark.parametrize(
    ("off", "chance"),
    [
        ([("weights", 3, 0.1)], True),
        ([("slots", 3, 0.1), ("weights", 3, 0.1), ("slots", 5, 0.1)], True),
        ([("weights", step, 0.1) for step in (1, 3, 5)], False),
        ([("weights", 0, 0.1)], False),
        ([("weights", 3, None)], False),
        ([("weights", 3, 0.1), ("metrics", 8, 0.1)], False),
        ([], False),
    ],
)
def test_few_updates_may_be_off_by_chance(off: list[Any], chance: bool) -> None:
    """At most a quarter of them, and nothing else: no more is made once more."""
    found = [
        Deviation(value=0.0, kind="weights", name="a", step=step, task="a") for step in range(9)
    ]
    found += [
        Deviation(value=value, kind=kind, name="a", step=step, task="a")
        for kind, step, value in off
    ]

    assert may_be_chance(judged("single", found, 1e-5, "largest")) == chance


def test_large_statistics_hide_no_gradient_in_half_precision() -> None:
    """A moving variance of inputs up to 255 changes a million times as much as a kernel."""
    traces = [sgd(half), sgd(right), sgd(right, np.float64)]
    for one in traces:
        changes = 100.0 * np.arange(STEPS + 1)[:, np.newaxis]
        one.weights["002 norm/variance"] = changes.astype(one.weights[KERNEL].dtype)
        one.meta["trained"] = {KERNEL: True, BIAS: True, "002 norm/variance": False}
    arm, reference, exact = traces

    assert not single_updates({"a": arm}, reference, exact, precision="float32").passed
    assert single_updates({"a": reference}, reference, exact, precision="float32").passed


def test_rounding_may_not_hide_an_update() -> None:
    """Where nothing is proved in float64: else a fault as large as the noise would be certified.

    With that proof, the check says how much it hides.
    """
    reference, rounded = sgd(right), sgd(right)
    rounded.weights[KERNEL] = rounded.weights[KERNEL] + np.float32(5 * RATE)
    largest = max(np.abs(np.diff(rows, axis=0)).max() for rows in reference.weights.values())

    asked = {"a": reference}
    check = single_updates(asked, reference, rounded, precision="float32")
    assert check.passed
    assert check.hidden == pytest.approx(10 * 5 * RATE / largest, rel=1e-2)
    check = single_updates(asked, reference, rounded, precision="float32", alone=True)
    assert not check.passed
    assert "float32 shows nothing" in check.finding


def test_few_weights_may_be_nothing_but_rounding() -> None:
    """They are named, nothing is said of them, and the others have no more room for that."""
    large, lost = "002 dense_1/kernel", "003 attention/key/bias"
    generator = np.random.default_rng(4)
    moves = RATE * generator.normal(size=(STEPS, 200))
    reference, rounded, wrong, lost_too = sgd(right), sgd(right), sgd(right), sgd(right)
    for one in (reference, rounded, wrong, lost_too):
        rows = np.concatenate([np.zeros((1, 200)), moves]).cumsum(axis=0)
        one.weights[large], one.weights[lost] = rows.astype(np.float32), rows[:, :2] * 0.5
    rounded.weights[lost] = rounded.weights[lost] + 0.05 * RATE
    wrong.weights[KERNEL] = wrong.weights[KERNEL] + np.float32(0.01 * RATE)
    lost_too.weights[lost] = lost_too.weights[lost] + 0.3 * RATE

    def check(arm: Trace) -> Any:
        return single_updates({"a": arm}, reference, rounded, precision="float32", alone=True)

    assert check(reference).passed
    assert check(lost_too).passed
    assert check(reference).finding.startswith(f"not of {lost}, whose gradient is nothing but")
    assert not check(wrong).passed
    assert KERNEL in check(wrong).finding


def test_a_sum_for_a_mean_from_the_fifth_update_on_is_caught() -> None:
    """The finding names the fifth update."""
    arm = sgd(total, wrong_from=4)

    check = single_updates({"a": arm}, sgd(right), sgd(right, np.float64), precision="float32")

    assert not check.passed
    assert check.finding.startswith("parts at update 5: 1.0e+00 in weights")


def test_a_weight_may_be_off_by_the_rounding_of_its_storage() -> None:
    """Two numbers of its type further, however small the update; four are too many."""
    for steps, passes in ((2, True), (4, False)):
        arm, reference = sgd(right), sgd(right)
        at = int(np.argmax(np.abs(reference.weights[KERNEL][3])))
        reference.weights[KERNEL][:, at] = arm.weights[KERNEL][:, at] = 100.0
        arm.weights[KERNEL][3, at] += steps * np.spacing(np.float32(100.0))

        check = single_updates({"a": arm}, reference, reference, precision="float32")

        assert check.passed is passes


@pytest.mark.parametrize(("times", "passes"), [(0.9, True), (1.1, False)])
def test_the_tolerance_is_of_the_largest_change_of_its_kind(times: float, passes: bool) -> None:
    """By hand, on both sides of the limit: an element of the bias, beside the kernel's change."""
    reference = trace()
    change = max(np.max(np.abs(rows[3] - rows[2])) for rows in reference.weights.values())
    arm = trace()
    arm.weights[BIAS][3, 0] += times * TOLERANCE["float32"] * change

    check = single_updates({"a": arm}, reference, reference, precision="float32")

    assert check.passed is passes
    assert check.worst is not None
    assert (check.worst.kind, check.worst.name, check.worst.step) == ("weights", BIAS, 3)
    assert check.worst.value == pytest.approx(times * TOLERANCE["float32"], rel=1e-6)


@pytest.mark.parametrize(("times", "passes"), [(9.0, True), (12.0, False)])
def test_an_update_that_amplifies_rounding_is_allowed_for(times: float, passes: bool) -> None:
    """Where float64 gives another update, ten times that distance, in all weights; not in slots."""
    reference, exact, arm = trace(), trace(), trace()
    noise = 0.01 * np.max(np.abs(np.diff(reference.weights[KERNEL], axis=0)))
    exact.weights[KERNEL][4, 0] += noise
    arm.weights[KERNEL][4, 2] += times * noise

    assert single_updates({"a": arm}, reference, exact, precision="float32").passed is passes
    arm.weights[KERNEL][4, 2] -= times * noise
    arm.weights[BIAS][4, 1] += times * noise
    assert single_updates({"a": arm}, reference, exact, precision="float32").passed is passes
    arm.weights[BIAS][4, 1] -= times * noise
    arm.slots["001 m/dense/kernel"][4, 1] += times * noise
    assert not single_updates({"a": arm}, reference, exact, precision="float32").passed


@pytest.mark.parametrize(("bits", "passes"), [(16, True), (32, False)])
def test_in_16_bits_predictions_may_be_off_by_their_noise(bits: int, passes: bool) -> None:
    """Ten times the distance from float64, and no more; a metric is left to float64."""
    reference, exact, arm = trace(), trace(), trace()
    reference.meta["bits"] = bits
    noise = 1e-3 * np.max(np.abs(reference.predictions["output 0"]))
    exact.predictions["output 0"][2, 0] += noise
    arm.predictions["output 0"][4, 1] += 9 * noise
    arm.metrics["accuracy"][0] += 0.1

    check = single_updates({"a": arm}, reference, exact, precision="float32")
    assert check.passed is passes
    assert check.bits == (16 if bits == 16 else None)
    arm.predictions["output 0"][4, 1] += 3 * noise
    assert not single_updates({"a": arm}, reference, exact, precision="float32").passed


def test_a_noise_that_is_no_number_allows_nothing() -> None:
    """Else a float64 run that diverged would let everything pass."""
    exact, arm = trace(), trace()
    exact.weights[KERNEL][2:] = np.inf
    arm.weights[KERNEL][2, 0] += 1.0

    assert not single_updates({"a": arm}, trace(), exact, precision="float32").passed


@pytest.mark.parametrize("kind", ["weights", "slots"])
def test_what_is_missing_or_no_number_fails(kind: str) -> None:
    """A variable too few, one too many, NaN; and another start."""
    name = {"weights": KERNEL, "slots": "001 m/dense/kernel"}[kind]
    arms = [trace(), trace(), trace(), trace()]
    rows = [getattr(arm, kind) for arm in arms]
    del rows[0][name]
    rows[1]["009 more"] = np.zeros((STEPS + 1, 1))
    rows[2][name][5, 1] = np.nan
    rows[3][name][0, 0] += 1.0

    for arm in arms:
        assert not single_updates({"a": arm}, trace(), trace(), precision="float32").passed
    assert single_updates({"a": trace()}, trace(), trace(), precision="float32").passed


def test_a_free_run_is_judged_by_what_it_changes() -> None:
    """An offset that stays is no change; 1e-12 of the weights is 1e-7 of a small update."""
    rows = np.linspace(1.0, 1.0 + 1e-5 * STEPS, STEPS + 1).reshape(-1, 1)
    reference, moved, wrong = (trace(weights={KERNEL: rows.copy()}) for _ in range(3))
    moved.weights[KERNEL] += 1e-11
    wrong.weights[KERNEL][4:] += 1e-12

    assert each_update({"a": moved}, reference).passed
    assert parity({"a": wrong}, reference, precision="float64").passed
    check = each_update({"a": wrong}, reference)
    assert not check.passed
    assert "parts at update 4: 1.0e-07 in weights" in check.finding


@pytest.mark.parametrize(
    ("rounding", "times", "step", "passed"),
    [
        (1e-9, 90.0, STEPS, True),
        (1e-9, 120.0, STEPS, False),
        (1e-9, 90.0, STEPS - 1, False),
        (2e-5, 0.0, STEPS, False),  # a hundred times that is more than a tenth of an update
    ],
)
def test_a_free_run_may_be_off_by_what_rounding_does_up_to_an_update(
    rounding: float, times: float, step: int, passed: bool
) -> None:
    """Where a program amplifies it; if that is much, nothing can be said."""
    rows = np.linspace(1.0, 1.0 + 1e-2 * STEPS, STEPS + 1).reshape(-1, 1)
    reference, rounded, arm = (trace(weights={KERNEL: rows.copy()}) for _ in range(3))
    rounded.weights[KERNEL][STEPS] += rounding
    arm.weights[KERNEL][step] += times * rounding

    assert each_update({"a": arm}, reference, rounded).passed == passed
    assert not times or not each_update({"a": arm}, reference).passed


def test_both_refuse_what_did_not_end() -> None:
    """An error, an update too few, a process that wrote nothing."""
    broken = trace(meta={"error": "LedgerError: 19 of 20"})

    assert "19 of 20" in each_update({"a": broken}, trace()).finding
    assert not each_update({}, trace()).passed
    check = single_updates({"a": trace()}, trace(), trace(), precision="float32", tasks=("a", "b"))
    assert "b wrote nothing" in check.finding
