"""A comparison as rows: one for each run, one for each arm. Medians and ranges, nothing more."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from measure.comparability import certificates_by_arm, why_not_comparable
from measure.evidence import Answer, examples_once, worst
from measure.run_figures import FIGURES, Figure, RunFigures, run_figures
from specs import Arm, Certificate, Comparison, RefusalError, Run, capabilities_of

# What all runs of a comparison must share, or their numbers do not stand side by side. The global
# batch is among it, so every scaling efficiency here is strong scaling.
SHARED_FIELDS = (
    "workload",
    "workload_options",
    "global_batch",
    "epochs",
    "learning_rate_rule",
    "precision",
    "pipeline",
    "resources.cores_per_replica",
)


@dataclass(frozen=True)
class Spread:
    """Median and range of one figure over the completed runs of an arm. Not an interval.

    Attributes:
        n: runs that have the figure.
        of: completed runs.
        reason: why the others have none.
    """

    median: float
    lowest: float
    highest: float
    n: int
    of: int
    reason: str = ""


@dataclass(frozen=True)
class Missing:
    """Why an arm has no such figure."""

    reason: str


@dataclass(frozen=True)
class Efficiency:
    """Strong scaling efficiency: X(N) ÷ (N · X(base)), from medians of throughput.

    The global batch is the same in all arms of a comparison. `value` is None where the base or the
    arm itself has no throughput, or one of them is not comparable; `base` names it, or is empty if
    the comparison has no such arm.
    """

    value: float | None
    base: str
    reason: str = ""


@dataclass(frozen=True)
class RunRow:
    """One run and its figures."""

    arm: Arm
    run: Run
    figures: RunFigures


@dataclass(frozen=True)
class ArmRow:
    """One arm over its completed runs.

    Attributes:
        started, completed: numbers of runs.
        not_completed: the others, in the order of rounds.
        spreads: by the names of `RunFigures`.
        against_group: efficiency against the same group at one replica.
        against_serial: efficiency against the arm without any distribution.
        not_comparable_because: why it must not be ranked, see `measure.comparability`; empty: it
            may be.
        certificate: None: it was not verified.
    """

    arm: Arm
    started: int
    completed: int
    not_completed: tuple[Run, ...]
    spreads: Mapping[str, Spread | Missing]
    against_group: Efficiency
    against_serial: Efficiency
    each_example_once: Answer
    replicas_equal: Answer
    not_comparable_because: str
    certificate: Certificate | None

    @property
    def comparable(self) -> bool:
        """Whether it is proved to compute what the others compute."""
        return not self.not_comparable_because

    @property
    def throughput(self) -> Spread | None:
        """Examples/s, or None if no completed run has it."""
        spread = self.spreads["throughput_examples_s"]
        return spread if isinstance(spread, Spread) else None


@dataclass(frozen=True)
class Summary:
    """All rows of a comparison.

    Attributes:
        serial: label of the arm without any distribution; empty if there is none.
        quality_metric, quality_target: the target of the workload; empty and None if it has none.
    """

    arms: tuple[ArmRow, ...]
    runs: tuple[RunRow, ...]
    serial: str
    quality_metric: str
    quality_target: float | None


def summarize(comparison: Comparison) -> Summary:
    """Compute every row; runs in the order in which they were started.

    Raises:
        RefusalError: arms, runs and certificates do not belong together, runs differ in what all
            must share, or the processes of one run disagree.
    """
    arms = _arms_by_label(comparison)
    _check_shared(comparison.runs)
    ordered = sorted(comparison.runs, key=lambda run: run.position)
    rows = tuple(
        RunRow(arms[run.arm], run, run_figures(run, once))
        for run, once in zip(ordered, examples_once(ordered), strict=True)
    )
    certificates = certificates_by_arm(comparison)
    measured = [_arm_row(arm, rows, certificates.get(arm.label)) for arm in comparison.arms]
    serial = next(
        (row for row in measured if capabilities_of(row.arm.backend).family == "none"), None
    )
    metric, target = _quality_target(comparison.runs)
    return Summary(
        arms=tuple(_with_efficiency(row, measured, serial) for row in measured),
        runs=rows,
        serial=serial.arm.label if serial else "",
        quality_metric=metric,
        quality_target=target,
    )


def spread_of(figures: Sequence[Figure]) -> Spread | Missing:
    """Median, lowest and highest of the figures that exist."""
    values = [figure.value for figure in figures if figure.value is not None]
    reasons = list(dict.fromkeys(figure.reason for figure in figures if figure.value is None))
    if not values:
        return Missing("; ".join(reasons) or "no run completed")
    return Spread(
        median=statistics.median(values),
        lowest=min(values),
        highest=max(values),
        n=len(values),
        of=len(figures),
        reason="; ".join(reasons),
    )


def efficiency(row: ArmRow, base: ArmRow | None) -> Efficiency:
    """Strong scaling efficiency, median_X(N) ÷ (N · median_X(base)), of two comparable arms."""
    if base is None:
        return Efficiency(None, "", "the comparison has no such arm")
    label = base.arm.label
    of_base, own = (one.spreads["throughput_examples_s"] for one in (base, row))
    if not row.comparable:
        return Efficiency(None, label, "not comparable")
    if not base.comparable:
        return Efficiency(None, label, f"{label}: not comparable")
    if isinstance(of_base, Missing):
        return Efficiency(None, label, f"{label}: {of_base.reason}")
    if isinstance(own, Missing):
        return Efficiency(None, label, own.reason)
    return Efficiency(own.median / (row.arm.replicas * of_base.median), label)


def _arms_by_label(comparison: Comparison) -> dict[str, Arm]:
    """The arms, after a look at whether runs and arms belong together."""
    arms = {arm.label: arm for arm in comparison.arms}
    if len(arms) != len(comparison.arms):
        raise RefusalError(
            "Each arm of a comparison must have a label of its own.",
            received=", ".join(arm.label for arm in comparison.arms),
        )
    for run in comparison.runs:
        where = f"run {run.arm!r} of round {run.round + 1}"
        if run.arm not in arms:
            raise RefusalError("Each run must belong to an arm of its comparison.", received=where)
        arm = arms[run.arm]
        told = (arm.backend, arm.replicas)
        ran = (run.spec.backend, run.spec.topology.num_replicas)
        if told != ran:
            raise RefusalError(
                "A run must have the backend and the number of replicas of its arm.",
                received=f"{where}: {ran[0]} ×{ran[1]}, and the arm is {told[0]} ×{told[1]}",
            )
    return arms


def _check_shared(runs: Sequence[Run]) -> None:
    """Refuse runs whose numbers do not stand side by side."""
    if not runs:
        return
    first = runs[0]
    seeds = {run.round: run for run in reversed(runs)}
    for run in runs:
        for field in SHARED_FIELDS:
            _refuse_difference(first, run, field)
        _refuse_difference(seeds[run.round], run, "seed")  # another round may have another seed


def _refuse_difference(first: Run, second: Run, field: str) -> None:
    look_up = attrgetter(field)
    expected, received = look_up(first.spec), look_up(second.spec)
    if expected != received:
        raise RefusalError(
            f"All runs that are compared must have the same {field}.",
            received=f"{received} in run {second.arm!r} of round {second.round + 1}, "
            f"{expected} in run {first.arm!r} of round {first.round + 1}",
        )


def _quality_target(runs: Sequence[Run]) -> tuple[str, float | None]:
    """The target that all records name; one for all, as they train one workload."""
    seen = {
        record.quality_target
        for run in runs
        for record in run.records
        if record.quality_target is not None
    }
    if len(seen) > 1:
        raise RefusalError(
            "All runs that are compared must have the same quality target.",
            received="; ".join(f"{metric} ≥ {value}" for metric, value in sorted(seen)),
        )
    return seen.pop() if seen else ("", None)


def _completed(rows: Sequence[RunRow], arm: Arm) -> list[RunFigures]:
    return [row.figures for row in rows if row.arm == arm and row.run.outcome.completed]


def _spreads(figures: Sequence[RunFigures]) -> dict[str, Spread | Missing]:
    return {name: spread_of([getattr(one, name) for one in figures]) for name in FIGURES}


def _arm_row(arm: Arm, rows: Sequence[RunRow], certificate: Certificate | None) -> ArmRow:
    """The row of an arm, as far as it stands alone."""
    own = [row for row in rows if row.arm == arm]
    completed = _completed(rows, arm)
    once = worst([one.each_example_once for one in completed])
    nothing = Efficiency(None, "")
    return ArmRow(
        arm=arm,
        started=len(own),
        completed=len(completed),
        not_completed=tuple(
            sorted(
                (row.run for row in own if not row.run.outcome.completed),
                key=lambda run: run.round,
            )
        ),
        spreads=_spreads(completed),
        against_group=nothing,
        against_serial=nothing,
        each_example_once=once,
        replicas_equal=worst([one.replicas_equal for one in completed]),
        not_comparable_because=why_not_comparable(certificate, [row.run for row in own], once),
        certificate=certificate,
    )


def _with_efficiency(row: ArmRow, rows: Sequence[ArmRow], serial: ArmRow | None) -> ArmRow:
    """The row beside those that it is measured against."""
    alone = next(
        (one for one in rows if one.arm.group == row.arm.group and one.arm.replicas == 1), None
    )
    return replace(
        row, against_group=efficiency(row, alone), against_serial=efficiency(row, serial)
    )
