"""The gate: does an arm compute what plain Keras computes? Only NumPy, no TensorFlow.

The deviation of an array is its largest |arm - reference|, divided by the largest |reference| among
all arrays of its kind (docs/decisions/0004-what-a-certificate-proves.md). After each update the
gate compares all that it changed, in every process: weights and optimizer variables. It also
compares the metrics, the evaluation and the predictions. What an update has changed is compared
once more by its size (updates.py), because it may be small beside the weights.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside.certificates.trace import Trace
from ringside.certificates.trial_request import FEWEST_UPDATES
from ringside_core.specs import Check, Deviation
from ringside_core.specs.certificate import Kind

# docs/decisions/0004-what-a-certificate-proves.md. float32: the tolerance of tf-keras' own
# correctness suite (distribute/keras_correctness_test_base.py).
TOLERANCE: Mapping[str, float] = {"float64": 1e-10, "float32": 4e-5}
AMPLIFIED = 10.0
# In float64. Weights are moved once; sums in another order round at each update.
GROWN = 100.0
ONE_EXAMPLE = 1.5


def parity(
    arm: Mapping[str, Trace],
    reference: Trace,
    *,
    precision: str,
    tasks: Sequence[str] = (),
    rounded: Trace | None = None,
) -> Check:
    """Whether every process of an arm saw what the reference saw, after each update.

    Args:
        arm: trace of each process, by task.
        reference: trace of plain Keras, which must have completed.
        precision: of both runs; it decides the tolerance.
        tasks: processes that must have written a trace; empty: those that have.
        rounded: trace of plain Keras with other rounding, which builds up in float32, and in
            float64 where a program amplifies it; it is allowed for. None: it does not matter.
    """
    name, tolerance = f"{precision} parity", TOLERANCE[precision]
    if obstacle := unfinished(arm, reference, tasks=tasks):
        return Check(name=name, passed=False, finding=obstacle, tolerance=tolerance)
    found = [d for task, trace in arm.items() for d in deviations(task, trace, reference)]
    finding = f"largest deviation in {reference.steps} updates"
    return beyond_rounding(name, found, reference, rounded, precision, finding)


def beyond_rounding(
    name: str,
    found: Sequence[Deviation],
    reference: Trace,
    rounded: Trace | None,
    precision: str,
    finding: str,
) -> Check:
    """A check of deviations; a multiple of what rounding does to plain Keras is allowed for.

    The deviations are judged as shares, so that the tolerance is the largest that passes.

    Args:
        name: of the check.
        found: deviations of an arm from the reference.
        reference: trace of plain Keras.
        rounded: trace of plain Keras with other rounding; None: nothing is allowed for.
        precision: of all runs.
        finding: begins the sentence that ends with the largest share.
    """
    tolerance = TOLERANCE[precision]
    if rounded is None:
        return judged(name, found, tolerance, finding)
    shares, most = as_shares(found, reference, rounded, precision)
    allowed = (
        f"of what rounding allows: {tolerance:.0e} stands for {most:.0e} of the largest weight"
    )
    check = judged(name, shares, tolerance, f"{finding} ({allowed})")
    if precision == "float32":
        return check
    check = check.replace(worst=max(found, key=size_of))  # tables show the number itself
    if most <= TOLERANCE["float32"]:
        return check
    return check.replace(passed=False, finding=shows_nothing(reference))


def shows_nothing(reference: Trace) -> str:
    """Of a program that amplifies rounding: that float64 shows nothing, and what may help."""
    said = "rounding grows so far that float64 shows nothing"
    more = reference.steps > FEWEST_UPDATES
    return f"{said}; fewer updates may: verify with --steps {FEWEST_UPDATES}" if more else said


def as_shares(
    found: Sequence[Deviation], reference: Trace, rounded: Trace, precision: str
) -> tuple[list[Deviation], float]:
    """Deviations as shares of what passes; and what passes of a weight.

    In float64 rounding begins at nothing and grows. So only what rounding did up to an update is
    allowed for: a mistake shows at once. In float32 a metric that counts examples may also be off
    by one, because whether rounding makes it right is chance.
    """
    grows = precision == "float64"
    noise: dict[tuple[str, str], list[Deviation]] = {}
    for one in deviations("", rounded, reference):
        noise.setdefault(_place(one, reference), []).append(one)

    def allowed(one: Deviation) -> float:
        seen = noise.get(_place(one, reference), ())
        own = [each.value or 0.0 for each in seen if not grows or each.step <= one.step]
        examples = 0.0 if grows else ONE_EXAMPLE * _of_one_example(one, reference)
        times = GROWN if grows else AMPLIFIED
        return TOLERANCE[precision] + times * max(own, default=0.0) + examples

    shares = [
        one
        if one.value is None
        else one.replace(value=one.value * TOLERANCE[precision] / allowed(one))
        for one in found
    ]
    trained = [one for one in found if _place(one, reference) == ("weights", "")]
    return shares, max(map(allowed, trained), default=TOLERANCE[precision])


def _place(one: Deviation, reference: Trace) -> tuple[str, str]:
    """What has noise of its own: a kind; each metric; weights that no optimizer updates."""
    if one.kind in ("metrics", "evaluation"):
        return one.kind, one.name
    untrained = one.kind == "weights" and not reference.is_trained(one.name)
    return one.kind, "untrained" if untrained else ""


def _of_one_example(one: Deviation, reference: Trace) -> float:
    """How much one example more that is right changes a metric; 0: it counts no examples."""
    if one.kind not in ("metrics", "evaluation"):
        return 0.0
    trained = one.kind == "metrics"
    values = reference.metrics if trained else {**reference.before, **reference.evaluation}
    if one.name not in values:
        return 0.0
    meta = reference.meta
    count = meta["train_examples"] if trained else meta["validation_examples"][0]
    if not count:
        return 0.0
    counted = np.asarray(values[one.name], np.float64) * count
    whole = np.abs(counted - np.round(counted)) <= count * np.finfo(np.float32).eps
    return 1.0 / (count * _scale([values[one.name]])) if np.all(whole) else 0.0


def judged(name: str, found: Sequence[Deviation], tolerance: float, finding: str) -> Check:
    """A check of deviations after each step: none may exceed the tolerance.

    Args:
        name: of the check.
        found: at least one.
        tolerance: the largest that passes.
        finding: begins the sentence that ends with the largest deviation.
    """
    worst = max(found, key=size_of)
    failed = [deviation for deviation in found if deviation.exceeds(tolerance)]
    finding = f"{finding} {worst}"
    if failed:
        first = min(failed, key=lambda d: (d.step, -size_of(d)))
        finding = f"parts at update {first.step}: {first}; {finding}"
    return Check(
        name=name,
        passed=not failed,
        finding=finding,
        tolerance=tolerance,
        worst=worst,
        by_step=_by_step(found),
    )


def _by_step(found: Sequence[Deviation]) -> tuple[Deviation, ...]:
    """The largest deviation of each kind after each step."""
    return tuple(
        max((d for d in found if (d.step, d.kind) == place), key=size_of)
        for place in sorted({(d.step, d.kind) for d in found})
    )


def unfinished(
    arm: Mapping[str, Trace], reference: Trace | None = None, *, tasks: Sequence[str] = ()
) -> str:
    """Why there is nothing to compare; empty: there is."""
    if not arm:
        return "no process wrote what it saw"
    if missing := [task for task in tasks if task not in arm]:
        return f"{', '.join(missing)} wrote nothing of what it saw"
    for task, trace in arm.items():
        if trace.error:
            return f"{task} ended with {trace.error}"
        if reference is not None and trace.steps != reference.steps:
            return f"{task} made {trace.steps} updates, the reference {reference.steps}"
    return ""


def size_of(deviation: Deviation) -> float:
    """How bad a deviation is; a value that is not a number is worst."""
    return float("inf") if deviation.value is None else deviation.value


def deviations(task: str, trace: Trace, reference: Trace) -> Iterator[Deviation]:
    """Every comparison of one process; the initial weights are step 0."""
    last = reference.steps
    yield from _whole(task, "evaluation", trace.before, reference.before, 0)
    weights, slots = reference.weights, reference.slots
    scales = _scales_of_weights(reference, weights)
    yield from _by_row(task, "weights", trace.weights, weights, scales, first_step=0)
    yield from _by_row(task, "slots", trace.slots, slots, _scales("slots", slots), first_step=0)
    yield from at_end(task, trace, reference, last)
    yield from _whole(task, "predictions", trace.predictions, reference.predictions, last)
    yield from gaps(task, trace, reference, first_step=1)


def at_end(task: str, trace: Trace, reference: Trace, step: int) -> Iterator[Deviation]:
    """The weights that one process ends with, and the results of each of its epochs."""
    scales = _scales_of_weights(reference, reference.final)
    yield from _whole(task, "weights", trace.final, reference.final, step, scales)
    yield from _whole(task, "metrics", trace.metrics, reference.metrics, step)
    yield from _whole(task, "evaluation", trace.evaluation, reference.evaluation, step)


def gaps(task: str, trace: Trace, reference: Trace, *, first_step: int) -> Iterator[Deviation]:
    """How far the replicas of one process are from each other."""
    scale = _scale((reference.weights or reference.final).values())
    for step, gap in enumerate(trace.replica_gap, start=first_step):
        value = float(gap) / scale if np.isfinite(gap) else None
        yield Deviation(value=value, kind="replicas", name="all variables", step=step, task=task)


def ends(task: str, trace: Trace, reference: Trace, updates: int) -> Iterator[Deviation]:
    """What a training of so many updates leaves in one process."""
    yield from at_end(task, trace, reference, updates)
    found, wanted = (
        {name: rows[-1] for name, rows in each.slots.items()} for each in (trace, reference)
    )
    yield from _whole(task, "slots", found, wanted, updates)
    yield from gaps(task, trace, reference, first_step=updates)


def _by_row(
    task: str,
    kind: Kind,
    arm: Mapping[str, NDArray[Any]],
    reference: Mapping[str, NDArray[Any]],
    scales: Mapping[str, float],
    *,
    first_step: int,
) -> Iterator[Deviation]:
    """Arrays whose rows are steps: the worst variable of each step."""
    steps = max((len(rows) for rows in reference.values()), default=0)
    for row in range(steps):
        found = [
            _deviation(
                task,
                kind,
                name,
                first_step + row,
                rows[row] if (rows := arm.get(name)) is not None and row < len(rows) else None,
                reference[name][row],
                scales[name],
            )
            for name in reference
        ]
        yield max(found, key=size_of)
    for name in arm.keys() - reference.keys():
        yield Deviation(value=None, kind=kind, name=name, step=first_step, task=task)


def _whole(
    task: str,
    kind: Kind,
    arm: Mapping[str, NDArray[Any]],
    reference: Mapping[str, NDArray[Any]],
    step: int,
    scales: Mapping[str, float] | None = None,
) -> Iterator[Deviation]:
    """Arrays that exist once, after the last update."""
    scales = scales or _scales(kind, reference)
    for name in reference.keys() | arm.keys():
        if name not in reference:
            yield Deviation(value=None, kind=kind, name=name, step=step, task=task)
        else:
            yield _deviation(task, kind, name, step, arm.get(name), reference[name], scales[name])


def _deviation(
    task: str, kind: Kind, name: str, step: int, arm: Any, reference: Any, scale: float
) -> Deviation:
    value: float | None = None
    if arm is not None and np.shape(arm) == np.shape(reference):
        difference = np.asarray(arm, np.float64) - np.asarray(reference, np.float64)
        largest = float(np.max(np.abs(difference), initial=0.0))
        value = largest / scale if np.isfinite(largest) else None
    return Deviation(value=value, kind=kind, name=name, step=step, task=task)


def _scales(kind: Kind, reference: Mapping[str, NDArray[Any]]) -> dict[str, float]:
    """The number by which the difference of each array is divided."""
    # All predictions are one kind. Optimizer variables are one kind for each slot, because moments
    # of different order differ by orders of magnitude. Each metric is a kind of its own.
    if kind in ("metrics", "evaluation"):
        return {name: _scale([array]) for name, array in reference.items()}
    if kind == "slots":
        groups: dict[str, list[NDArray[Any]]] = {}
        for name, array in reference.items():
            groups.setdefault(slot_of(name), []).append(array)
        return {name: _scale(groups[slot_of(name)]) for name in reference}
    scale = _scale(reference.values())
    return dict.fromkeys(reference, scale)


def _scales_of_weights(reference: Trace, arrays: Mapping[str, NDArray[Any]]) -> dict[str, float]:
    """The same of weights. What no optimizer updates may be large, and is a kind of its own."""
    kinds = {
        trained: _scale(
            [one for name, one in arrays.items() if reference.is_trained(name) == trained]
        )
        for trained in (True, False)
    }
    return {name: kinds[reference.is_trained(name)] for name in arrays}


def slot_of(name: str) -> str:
    """The slot of an optimizer variable: `003 m/dense/kernel` and every other `m`.

    Of several optimizers, `003 0/m/dense/kernel` and every other `m` of the same one.
    """
    first, _, rest = name.partition(" ")[2].partition("/")
    return f"{first}/{rest.partition('/')[0]}" if first.isdecimal() else first


def _scale(arrays: Sequence[NDArray[Any]] | Any) -> float:
    largest = max((float(np.max(np.abs(a), initial=0.0)) for a in arrays), default=0.0)
    # If all are zero, a difference is not divided.
    return largest if np.isfinite(largest) and largest > 0 else 1.0
