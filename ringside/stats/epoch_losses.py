"""Losses of every epoch, held against each other: what a certificate of a few updates cannot see.

Exact arms that train with one seed and one global batch must have the same losses, up to rounding.
Rounding grows: sooner or later it flips a ReLU, and then two right runs part, yet by and by. A
mistake parts them from one epoch to the next. So what passes is measured by the differences before
(docs/decisions/0004-what-a-certificate-proves.md has the measurements).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ringside.stats.step_times import chief_of
from ringside_core.specs import Arm, Certificate, Run
from ringside_core.specs.run_spec import Precision
from ringside_core.text import listed

# The difference of a loss, as a share of the largest loss of its kind, passes if it is at most
# GROWTH times the largest difference before it, or START · PER_UPDATE ** updates of the epoch.
GROWTH = 1000.0
START: Mapping[Precision, float] = {"float32": 1e-3, "float64": 1e-9}
PER_UPDATE = 1.05
MOST_AT_START = 0.03
KINDS = ("training", "validation")


@dataclass(frozen=True)
class Departure:
    """The first loss in which an arm differs from another one by more than rounding.

    Attributes:
        stage: its launch, as `Run.stage` says it.
        epoch: from 1.
        doubtful: no arm agrees with more than half of the arms; which one is right is not known.
    """

    other: str  # label of the arm that it is held against; `expected` is its loss
    stage: str
    epoch: int
    kind: str  # training or validation
    loss: float
    expected: float
    share: float  # their difference ÷ the largest loss of that kind in the other arm
    tolerance: float
    doubtful: bool = False

    def __str__(self) -> str:
        text = (
            f"its {self.kind} loss of epoch {self.epoch} in {self.stage} is "
            f"{self.loss:.6g}, that of {self.other} is {self.expected:.6g}: {self.share:.1e} of "
            f"the largest loss apart, where rounding explains {self.tolerance:.1e}"
        )
        return f"{text}; no majority says which of them is right" if self.doubtful else text


@dataclass(frozen=True)
class Losses:
    """What came of holding the losses of all epochs against each other.

    Attributes:
        departures: the first one of each arm that departs, by its label; a twin has its arm's.
        splitting: layers that depend on the split of a batch; if there are any, only arms of one
            size were held against each other.
        drawing: layers that draw random numbers; if there are any, nothing was held.
    """

    departures: Mapping[str, Departure] = field(default_factory=dict)
    held: frozenset[str] = frozenset()  # labels of the arms that were held against another one
    largest: float = 0.0  # the largest share by which two of them differ and pass
    splitting: tuple[str, ...] = ()
    drawing: tuple[str, ...] = ()

    def __str__(self) -> str:
        """One or two sentences; empty: there was nothing to hold."""
        if self.drawing:
            return (
                "The losses of the epochs were not held against each other: "
                f"{listed(self.drawing)} draws random numbers, which differ between arms."
            )
        if not self.held:
            return ""
        who = f"{len(self.held)} exact arms were held against each other"
        if self.splitting:
            who += f", among arms of one size because of {listed(self.splitting)}"
        text = f"The losses of every epoch of {who}: "
        if self.departures:
            return f"{text}{listed(sorted(self.departures))} departs by more than rounding."
        size = f"{self.largest:.1e} of the largest loss" if self.largest else "0"
        return f"{text}they agree up to rounding; the largest difference is {size}."


class _Course(NamedTuple):
    """The losses of one run: of training, and of validation if there are data, by epoch."""

    arm: Arm
    round: int
    stage: str
    updates: list[int]  # of each epoch
    losses: list[list[float]]
    start: float  # see START


def held_losses(runs: Iterable[tuple[Arm, Run]], certificates: Mapping[str, Certificate]) -> Losses:
    """Hold the runs of exact arms against each other, launch by launch.

    An arm departs from the serial one. In a group without that, it departs from an arm with which
    more than half of the group agree.

    Args:
        runs: of the arms that may be ranked so far, twins among them.
        certificates: by the label of the arm, a twin's too.
    """
    layers = [one for certificate in certificates.values() for one in certificate.by_design]
    if drawing := tuple(sorted({one.layer for one in layers if not one.split})):
        return Losses(drawing=drawing)
    splitting = tuple(sorted({one.layer for one in layers if one.split}))
    groups: dict[tuple[object, ...], list[_Course]] = {}
    for arm, run in runs:
        course = _course(arm, run)
        if course is not None and certificates[arm.label].kind == "exact":
            size = arm.replicas if splitting else 0
            # The two Keras draw other initial weights, and 16 bits round otherwise.
            key = (run.round, run.spec.global_batch, size, run.spec.arithmetic)
            groups.setdefault(key, []).append(course)
    several = [group for group in groups.values() if len(group) > 1]
    departures: dict[str, Departure] = {}
    largest = 0.0
    for group in several:
        for one, differences in _held(group):
            apart = [each for each in differences if each.share > each.tolerance]
            if apart:
                departures.setdefault(one.arm.twin_of or one.arm.label, apart[0])
            else:
                largest = max([largest, *(each.share for each in differences)])
    held = frozenset(one.arm.label for group in several for one in group)
    return Losses(departures, held, largest, splitting)


def _course(arm: Arm, run: Run) -> _Course | None:
    """None: it did not complete, or kept no losses. A live run goes on past its author's epochs."""
    chief = chief_of(run)
    if not run.outcome.completed or chief is None or not chief.epochs:
        return None
    first = chief.epochs[0]
    epochs = [
        epoch
        for epoch in chief.epochs[: run.spec.epochs]
        if (epoch.steps, epoch.validation.keys()) == (first.steps, first.validation.keys())
    ]
    if not all("loss" in epoch.train for epoch in epochs):
        return None
    kept = [(epoch.train, epoch.validation) for epoch in epochs]
    losses = [[one["loss"] for one in both if "loss" in one] for both in kept]
    updates = [epoch.steps for epoch in epochs]
    return _Course(arm, run.round, run.stage, updates, losses, START[run.spec.precision])


def _held(group: Sequence[_Course]) -> Iterator[tuple[_Course, list[Departure]]]:
    """Each arm, and its differences from the one that is right; the first ones come first."""
    right = next((one for one in group if one.arm.capabilities.family == "none"), None)
    if right is None:
        right = max(group, key=lambda one: _agreeing(one, group))
        if 2 * _agreeing(right, group) <= len(group):
            for one in group:
                other = max(group, key=lambda other: _most_apart(one, other))
                yield one, [replace(each, doubtful=True) for each in _differences(one, other)]
            return
    for one in group:
        if one is not right:
            yield one, _differences(one, right)


def _agreeing(one: _Course, group: Sequence[_Course]) -> int:
    return sum(_most_apart(other, one) <= 1 for other in group)


def _most_apart(one: _Course, other: _Course) -> float:
    """The largest share, in tolerances."""
    return max((each.share / each.tolerance for each in _differences(one, other)), default=0.0)


def _differences(one: _Course, other: _Course) -> list[Departure]:
    """The differences of all epochs, also those that pass."""
    scales = [
        max(map(abs, losses), default=0.0) or 1.0 for losses in zip(*other.losses, strict=True)
    ]
    found: list[Departure] = []
    epochs = zip(one.updates, other.updates, one.losses, other.losses, strict=False)
    for epoch, (updates, others, mine, theirs) in enumerate(epochs, start=1):
        if updates != others:
            break  # both were ended within it
        start = min(MOST_AT_START, one.start * PER_UPDATE ** min(updates, 1000))
        for kind, loss, expected, scale in zip(KINDS, mine, theirs, scales, strict=False):
            before = max((each.share for each in found), default=0.0)
            share = abs(loss - expected) / scale
            tolerance = max(start, GROWTH * before)
            found.append(
                Departure(other.arm.label, one.stage, epoch, kind, loss, expected, share, tolerance)
            )
    return found
