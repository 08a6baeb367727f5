"""What each update changes, judged by the size of the update. Only NumPy, no TensorFlow.

Beside the weights an update can be small: then a gradient in half precision hides within a
tolerance that is a share of the weights. So an arm may be off by

    tolerance × size of the update  +  AMPLIFIED × noise  +  ROUNDED × one rounding of the value

in each element. The size is the largest change of its kind: the weights that an optimizer updates;
the others, such as moving statistics, which may be far larger; each optimizer slot. The noise is
what rounding does to the updates of that kind in plain Keras itself: their largest distance from
the same updates with other rounding, from the same states. These are made in float64; or, of a
model that cannot run so, in float32 with each trained weight moved by one rounding. It is large
where an optimizer divides by what is nearly nothing. That is so in few elements, and rounding may
by chance spare those of one variable; so the noise is that of the kind. Slots that hold gradients
have little of it.

A value that is nearly nothing may fall on either side of a ReLU, by rounding: now and then an
update is another. So where few single updates differ they are made once more, by plain Keras
and by the arm, from other states near by. A mistake is there again; by chance the same update
hardly is. See docs/decisions/0004-what-a-certificate-proves.md.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside.certificates.gate import (
    AMPLIFIED,
    GROWN,
    TOLERANCE,
    as_shares,
    deviations,
    judged,
    shows_nothing,
    size_of,
    slot_of,
    unfinished,
)
from ringside.certificates.trace import Trace
from ringside_core.specs import Check, Deviation
from ringside_core.specs.certificate import Kind
from ringside_core.specs.coverage import MOST_HIDDEN

OF_EACH_UPDATE = 1e-8
ROUNDED = 2.0
MOST_UNSEEN = 0.01  # of the trained elements
MOST_BY_CHANCE = 0.25  # of the updates
_CHANGED: tuple[Kind, ...] = ("weights", "slots")

Rows = dict[str, NDArray[Any]]


def each_update(arm: Mapping[str, Trace], reference: Trace, rounded: Trace | None = None) -> Check:
    """Whether each update of a free float64 run changes what the reference's update changes.

    Args:
        arm: trace of each process, by task.
        reference: trace of plain Keras, which must have completed.
        rounded: see `ringside.certificates.gate.parity`.
    """
    name, tolerance = "each update", OF_EACH_UPDATE
    if obstacle := unfinished(arm, reference):
        return Check(name=name, passed=False, finding=obstacle, tolerance=tolerance)
    noise = {kind: _growing(kind, reference, rounded) if rounded else {} for kind in _CHANGED}
    largest, most = _largest_update(reference), noise["weights"].get("", np.zeros(1))
    if GROWN * np.max(most) > MOST_HIDDEN * largest:
        return Check(name=name, passed=False, finding=shows_nothing(reference), tolerance=tolerance)
    found = [
        deviation
        for kind in _CHANGED
        for deviation in _updates(kind, arm, reference, tolerance, noise[kind], GROWN, single=False)
    ]
    beside = "the update and of what rounding does to it" if rounded else "the update"
    finding = f"largest deviation by the size of {beside}, in {reference.steps} updates,"
    return judged(name, found, tolerance, finding)


def single_updates(
    arm: Mapping[str, Trace],
    reference: Trace,
    rounded: Trace,
    *,
    precision: str,
    tasks: Sequence[str] = (),
    alone: bool = False,
    again: tuple[Mapping[str, Trace], Trace] | None = None,
) -> Check:
    """Whether every update does what the reference's does, each from the reference's state.

    Losses, metrics, evaluation and predictions are judged as by `gate.parity`.

    Args:
        arm: trace of each process, by task, which loaded the reference's state before each update.
        reference: trace of plain Keras, which trained freely.
        rounded: trace of the same updates, from the same states, with other rounding.
        precision: of the arm and the reference.
        tasks: processes that must have written a trace; empty: those that have.
        alone: whether nothing is proved in float64; then rounding may not hide much. Else the
            check says how much it does.
        again: arm and reference, both from other states near by. An update counts as off if it is
            off in both.
    """
    name, tolerance = f"{precision} single updates", TOLERANCE[precision]
    if obstacle := unfinished(arm, reference, tasks=tasks):
        return Check(name=name, passed=False, finding=obstacle, tolerance=tolerance)
    if rounded.steps != reference.steps:
        finding = f"plain Keras made {rounded.steps} updates with other rounding, not as many"
        return Check(name=name, passed=False, finding=finding, tolerance=tolerance)
    found = [
        deviation
        for task, trace in arm.items()
        for deviation in deviations(task, trace, reference)
        if deviation.kind not in _CHANGED or deviation.step == 0
    ]
    finding = f"largest deviation in {reference.steps} updates"
    bits = reference.meta.get("bits", 32)
    if bits < 32:
        # Metrics are left to float64: that one example more is right says nothing in 16 bits.
        found = [one for one in found if one.kind not in ("metrics", "evaluation")]
        found, _ = as_shares(found, reference, rounded, precision)
        finding += f" (of a model that computes in {bits} bits: as a share of what that allows)"
    unseen = _unseen(reference, rounded) if bits >= 32 else {}
    hidden = _hidden(reference, rounded, unseen)
    if alone and hidden > MOST_HIDDEN:
        finding = f"rounding hides {hidden:.0%} of an update, so that float32 shows nothing"
        return Check(name=name, passed=False, finding=finding, tolerance=tolerance)
    second_look = None if again is None or unfinished(*again, tasks=tasks) else again
    for kind in _CHANGED:
        noise = _noise(kind, reference, rounded, unseen)
        updates = partial(
            _updates, kind, tolerance=tolerance, noise=noise, times=AMPLIFIED, unseen=unseen
        )
        off = [*updates(arm=arm, reference=reference, single=True)]
        if second_look:
            mine, theirs = second_look
            second = updates(arm=mine, reference=theirs, single=True)
            by_place = {(one.step, one.task): one for one in second}
            off = [_smaller(one, by_place.get((one.step, one.task), one)) for one in off]
        found += off
    if second_look:
        finding += ", each the smaller of two, of which the second began near by"
    finding += f", where rounding hides {hidden:.0e} of an update of weights,"
    if unseen:
        finding = (
            f"not of {', '.join(unseen)}, whose gradient is nothing but rounding here; {finding}"
        )
    check = judged(name, found, tolerance, finding).replace(hidden=hidden)
    return check.replace(bits=bits) if bits < 32 else check


def may_be_chance(check: Check) -> bool:
    """Whether single updates failed by what rounding may have done: in few of them, and only there.

    A mistake that comes and goes is not to be excused again and again.
    """
    failed = [one for one in check.by_step if one.exceeds(check.tolerance or 0.0)]
    changed = all(one.kind in _CHANGED and one.step and one.value is not None for one in failed)
    off, made = (len({one.step for one in some if one.step}) for some in (failed, check.by_step))
    return changed and 0 < off <= max(1, MOST_BY_CHANCE * made)


def _smaller(first: Deviation, second: Deviation) -> Deviation:
    choose = max if None in (first.value, second.value) else min  # no number is no chance
    return choose(first, second, key=size_of)


def _updates(
    kind: Kind,
    arm: Mapping[str, Trace],
    reference: Trace,
    tolerance: float,
    noise: Mapping[str, Any],
    times: float,
    unseen: Collection[str] = (),
    *,
    single: bool,
) -> Iterator[Deviation]:
    """The worst variable of each update in each process; `times` the noise is allowed for."""
    # single: all made each update from the reference's states, and not from their own.
    rows = _rows(kind, reference)
    allowed = _sizes(kind, reference)
    for name in allowed:
        left_out = kind == "weights" and name in unseen
        own = np.inf if left_out else noise.get(_group(kind, name, reference), 0.0)
        allowed[name] = allowed[name] + times / tolerance * own
    for task, trace in arm.items():
        mine = _rows(kind, trace)
        off = _off(mine, rows, single=single)
        values = {name: off[name] / np.where(allowed[name] > 0, allowed[name], 1.0) for name in off}
        for step in range(reference.steps if rows else 0):
            found = [(float(of_steps[step]), name) for name, of_steps in values.items()]
            value, name = max(found, key=lambda one: one[0] if np.isfinite(one[0]) else np.inf)
            known = value if np.isfinite(value) else None
            yield Deviation(value=known, kind=kind, name=name, step=step + 1, task=task)
        for name in mine.keys() - rows.keys():
            yield Deviation(value=None, kind=kind, name=name, step=1, task=task)


def _rows(kind: Kind, trace: Trace) -> Rows:
    return trace.weights if kind == "weights" else trace.slots


def _off(arm: Rows, reference: Rows, *, single: bool, most: Callable[..., Any] = np.max) -> Rows:
    """Largest difference of each variable in each update, beyond one rounding: [steps] by name."""
    # Or `most` of its elements' differences. NaN where nothing can be compared.
    found = {}
    for name, right in reference.items():
        mine = arm.get(name)
        if mine is None or mine.shape != right.shape:
            found[name] = np.full(len(right) - 1, np.nan)
            continue
        difference = _wide(mine) - _wide(right)
        difference = difference[1:] if single else np.diff(difference, axis=0)
        beyond = np.maximum(np.abs(difference) - ROUNDED * _one_rounding(right), 0.0)
        found[name] = most(beyond, axis=1) if beyond.size else np.zeros(len(beyond))
    return found


def _one_rounding(rows: NDArray[Any]) -> NDArray[Any]:
    """The distance of each value from the next number of its type: [steps, elements]."""
    if rows.dtype.kind != "f":
        return np.zeros((1, 1))
    largest = np.abs(rows)
    return _wide(np.spacing(np.maximum(largest[1:], largest[:-1])))


def _growing(kind: Kind, reference: Trace, rounded: Trace) -> dict[str, NDArray[Any]]:
    """What rounding does to the updates of a free run up to each of them, by group: [steps]."""
    noise: dict[str, NDArray[Any]] = {}
    for name, off in _off(_rows(kind, rounded), _rows(kind, reference), single=False).items():
        group = _group(kind, name, reference)
        noise[group] = np.maximum(np.nan_to_num(off, posinf=0.0), noise.get(group, 0.0))
    return {group: np.maximum.accumulate(off) for group, off in noise.items()}


def _noise(
    kind: Kind, reference: Trace, rounded: Trace, unseen: Collection[str] = ()
) -> dict[str, float]:
    """What rounding does to the updates, by group."""
    noise: dict[str, float] = {}
    for name, most in _noise_of_each(kind, reference, rounded).items():
        if kind != "weights" or name not in unseen:
            group = _group(kind, name, reference)
            noise[group] = max(most, noise.get(group, 0.0))
    return noise


def _noise_of_each(
    kind: Kind, reference: Trace, rounded: Trace, most: Callable[..., Any] = np.max
) -> dict[str, float]:
    """The same by name, over all updates: by chance there is none in one of them."""
    # What is no number allows nothing.
    off = _off(_rows(kind, rounded), _rows(kind, reference), single=True, most=most)
    return {name: float(np.max(one[np.isfinite(one)], initial=0.0)) for name, one in off.items()}


def _largest_update(reference: Trace) -> float:
    sizes = _sizes("weights", reference).items()
    trained = [np.max(rows, initial=0.0) for name, rows in sizes if reference.is_trained(name)]
    return float(max(trained, default=0.0))


def _unseen(reference: Trace, rounded: Trace) -> dict[str, None]:
    """The few trained variables of most of whose elements rounding hides too much; in order."""
    # The bias of an attention's keys is one: it moves no output, so its gradient is nothing but
    # rounding, of which Adam makes whole updates. None, if they are more than a few.
    rows, largest = _rows("weights", reference), _largest_update(reference)
    noise = _noise_of_each("weights", reference, rounded, most=np.median)
    trained = [name for name in rows if reference.is_trained(name)]
    found = [name for name in trained if AMPLIFIED * noise[name] > MOST_HIDDEN * largest]
    elements = {name: rows[name][0].size for name in trained}
    few = sum(elements[name] for name in found) <= MOST_UNSEEN * sum(elements.values())
    return dict.fromkeys(found if few else ())


def _hidden(reference: Trace, rounded: Trace, unseen: Collection[str] = ()) -> float:
    """AMPLIFIED × noise of trained weights, as a share of their largest update; 0: none changes."""
    largest = _largest_update(reference)
    noise = _noise("weights", reference, rounded, unseen).get("", 0.0)
    return AMPLIFIED * noise / largest if largest > 0 else 0.0


def _sizes(kind: Kind, reference: Trace) -> Rows:
    """The largest change of its group in each update: [steps] by name of the variable."""
    changes = {
        name: np.max(np.abs(np.diff(_wide(rows), axis=0)), axis=1, initial=0.0)
        for name, rows in _rows(kind, reference).items()
    }
    groups: dict[str, list[NDArray[Any]]] = {}
    for name, change in changes.items():
        groups.setdefault(_group(kind, name, reference), []).append(change)
    return {name: np.max(groups[_group(kind, name, reference)], axis=0) for name in changes}


def _group(kind: Kind, name: str, reference: Trace) -> str:
    """Variables that are judged by one size: a slot; weights that an optimizer updates, or not."""
    if kind == "slots":
        return slot_of(name)
    return "" if reference.is_trained(name) else "untrained"


def _wide(rows: NDArray[Any]) -> NDArray[Any]:
    return rows.astype(np.float64)
