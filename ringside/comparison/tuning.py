"""The same number of trials for every arm over its own knobs: neither side is a straw man."""

import contextlib
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ringside.comparison.arms import largest, with_changes
from ringside.comparison.experiment import Executor, keep, run_arm
from ringside.comparison.progress import ComparisonProgress
from ringside.stats.run_figures import throughput_examples_s
from ringside_core.specs import Arm, Comparison, RefusalError, Trial
from ringside_core.specs.knob import KnobValue, knobs
from ringside_core.specs.run_spec import TrainingSpec

# Of the trials; the others turn several knobs at once.
SINGLE_SHARE = 2 / 3
Changes = Mapping[str, KnobValue]


@dataclass(frozen=True)
class Tried:
    """A setting and its throughput in examples/s; None: its run gave no number."""

    changes: Changes
    throughput: float | None


def next_setting(
    singles: Sequence[tuple[str, KnobValue]], tried: Sequence[Tried], trials: int
) -> dict[str, KnobValue] | None:
    """The setting to try next; None: there is none left.

    First comes the unchanged arm, then one knob at a time, in the order of `singles`. When two
    thirds of the trials are used and at least two knobs were faster than the unchanged arm, their
    best values are tried together; then without the knob that gained least, and so on.
    """
    if len(tried) >= trials:
        return None
    if not tried:
        return {}
    seen = [dict(one.changes) for one in tried]
    untried = [{name: value} for name, value in singles if {name: value} not in seen]
    together = [changes for changes in _combinations(tried) if changes not in seen]
    if together and (not untried or len(tried) >= math.ceil(trials * SINGLE_SHARE)):
        return together[0]
    return untried[0] if untried else None


def _combinations(tried: Sequence[Tried]) -> list[dict[str, KnobValue]]:
    """Best values of the knobs that alone beat the unchanged arm: all together, then fewer."""
    as_it_is = next((one.throughput for one in tried if not one.changes), None) or 0.0
    best: dict[str, tuple[float, KnobValue]] = {}
    for one in tried:
        if len(one.changes) == 1 and one.throughput is not None and one.throughput > as_it_is:
            ((name, value),) = one.changes.items()
            if name not in best or one.throughput > best[name][0]:
                best[name] = (one.throughput, value)
    ranked = sorted(best, key=lambda name: -best[name][0])
    return [{name: best[name][1] for name in ranked[:n]} for n in range(len(ranked), 1, -1)]


def best_of(tried: Sequence[Tried]) -> Tried | None:
    """The setting with the highest throughput, the first of equal ones; None: none has any."""
    measured = [one for one in tried if one.throughput is not None]
    return max(measured, key=lambda one: one.throughput or 0.0, default=None)


def arms_to_tune(comparison: Comparison) -> list[Arm]:
    """The largest arm of each group, the reference too; no twins and no breakdown arms."""
    return largest(a for a in comparison.arms if not (a.twin_of or a.for_breakdown or a.tuned_from))


def tune(
    comparison: Comparison, *, folder: Path, executor: Executor, observer: ComparisonProgress
) -> Comparison:
    """Make the missing trials; the best setting of each arm becomes an arm of its own.

    Trials that the comparison already holds are not repeated. A setting that fails is kept as a
    trial with its reason.
    """
    comparison = _untuned(comparison)
    gpus, hosts = bool(comparison.machine.gpus), len(comparison.hosts) > 1
    for arm in arms_to_tune(comparison):
        singles = _able(comparison, arm, candidates(arm, gpus=gpus, hosts=hosts))
        random.Random(f"{comparison.seed} {arm.label}").shuffle(singles)
        tried = _tried(comparison, arm)
        while (changes := next_setting(singles, tried, comparison.trials_each)) is not None:
            changed = _as_trial(arm, changes)
            observer.start(changed.label)
            run = run_arm(
                comparison,
                changed,
                number=0,
                position=len(comparison.trials),
                folder=folder,
                executor=executor,
                place="trials",
            )
            trial = Trial(arm=changed, tuned_from=arm.label, run=run)
            comparison = comparison.replace(trials=(*comparison.trials, trial))
            keep(comparison, folder)
            observer.end(run, "")
            tried = _tried(comparison, arm)
    return _with_best(comparison)


def next_best(comparison: Comparison) -> Comparison | None:
    """Pass over settings with which an arm was not certified, and choose the next best ones.

    An arm that is not certified as it is keeps its choice: its settings are not the cause.

    Returns:
        The comparison with other tuned arms, which need certificates; None: all may stay.
    """
    passed = {one.arm.label: one.passed for one in comparison.certificates}
    groups = {arm.label: arm.group for arm in comparison.arms}
    refused = {
        groups[one.arm.tuned_from]: one
        for one in comparison.certificates
        if one.arm.tuned_from and not one.passed and passed.get(one.arm.tuned_from)
    }
    if not refused:
        return None
    trials = tuple(
        trial.replace(passed_over=f"{failed.arm.label} is not certified: {failed.reason}")
        if trial.chosen and (failed := refused.get(groups[trial.tuned_from]))
        else trial
        for trial in comparison.trials
    )
    gone = {f"{group} tuned" for group in refused}
    certificates = tuple(one for one in comparison.certificates if one.arm.group not in gone)
    return _with_best(_untuned(comparison).replace(trials=trials, certificates=certificates))


def _untuned(comparison: Comparison) -> Comparison:
    """The comparison without the arms that a search has added."""
    return comparison.replace(arms=tuple(arm for arm in comparison.arms if not arm.tuned_from))


def _with_best(comparison: Comparison) -> Comparison:
    """The best setting of each arm that is not passed over becomes arms of all sizes."""
    for arm in arms_to_tune(comparison):
        best = best_of(_tried(comparison, arm, left=True))
        if best is None:
            continue
        chosen, group = _as_trial(arm, best.changes).label, f"{arm.group} tuned"
        trials = tuple(
            one.replace(chosen=one.arm.label == chosen) if one.tuned_from == arm.label else one
            for one in comparison.trials
        )
        tuned = [
            with_changes(other, best.changes).replace(
                label=f"{group} ×{other.replicas}", group=group, tuned_from=other.label
            )
            for other in comparison.arms
            if best.changes and other.group == arm.group
        ]
        comparison = comparison.replace(trials=trials, arms=(*comparison.arms, *tuned))
    return comparison


def changes_of(comparison: Comparison, trial: Trial) -> dict[str, KnobValue]:
    """What a trial changed in its arm."""
    original = next(arm for arm in comparison.arms if arm.label == trial.tuned_from)
    before = {**dict(original.options), **dict(original.settings)}
    after = {**dict(trial.arm.options), **dict(trial.arm.settings)}
    return {name: value for name, value in after.items() if value != before[name]}


def _tried(comparison: Comparison, arm: Arm, *, left: bool = False) -> list[Tried]:
    """The settings tried for an arm; if asked for, only those that are left to choose."""
    return [
        Tried(
            changes_of(comparison, trial),
            throughput_examples_s(trial.run).value if trial.run.outcome.completed else None,
        )
        for trial in comparison.trials
        if trial.tuned_from == arm.label and not (left and trial.passed_over)
    ]


def _able(
    comparison: Comparison, arm: Arm, singles: list[tuple[str, KnobValue]]
) -> list[tuple[str, KnobValue]]:
    """The settings with which a run of this arm can be started."""
    able = []
    for name, value in singles:
        with contextlib.suppress(RefusalError):
            comparison.spec_of(with_changes(arm, {name: value}))
            able.append((name, value))
    return able


def _as_trial(arm: Arm, changes: Changes) -> Arm:
    if not changes:
        return arm
    typed = ":".join(f"{name}={value}" for name, value in changes.items())
    return with_changes(arm, changes).replace(label=f"{arm.label} with {typed}")


def candidates(arm: Arm, *, gpus: bool, hosts: bool = False) -> list[tuple[str, KnobValue]]:
    """Every (knob, value) that may change how fast the arm is, without the values that it has."""
    there = {
        "gpus": gpus,
        "replicas": arm.replicas > 1,
        "hosts": hosts,
        "mpi": arm.options.horovod_controller == "mpi",
    }
    return [
        (knob.name, value)
        for kind in (type(arm.options), TrainingSpec)
        for knob in knobs(kind)
        for worth in knob.searches
        if all(there[need] for need in worth.needs)
        for value in worth.values
        if with_changes(arm, {knob.name: value}) != arm
    ]
