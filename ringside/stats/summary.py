"""A comparison as rows: one for each run, one for each arm, and a verdict for each pair."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ringside.stats.comparability import (
    FOR_BREAKDOWN,
    arms_by_label,
    certificates_by_arm,
    check_alike,
    why_not_comparable,
)
from ringside.stats.contenders import judge
from ringside.stats.epoch_losses import Losses, held_losses
from ringside.stats.evidence import Answer, replicas_equal, same_rows, worst
from ringside.stats.figure import Figure, Interval, Spread, geometric_mean_with_interval, spread_of
from ringside.stats.looks import level
from ringside.stats.rounds import RoundsUsed, rounds_used, why_untrusted
from ringside.stats.run_figures import FIGURES, run_figures
from ringside.stats.step_times import counted_blocks
from ringside.stats.verdicts import PairVerdict, Sample, checked, turned
from ringside_core.specs import Arm, Certificate, Comparison, RefusalError, Run

NO_BASE = "the comparison has no such arm"


@dataclass(frozen=True)
class Efficiency(Figure):
    """Scaling efficiency X(N) ÷ (N · X(base)), from the ratio of throughputs over paired rounds.

    Strong or weak as the comparison's scaling. There is no value if the base or the arm has no
    throughput, or if one of them is not comparable.

    Attributes:
        base: label of the arm that it is measured against; empty: the comparison has no such arm.
    """

    base: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class RunRow:
    """One run and its figures; `used` says whether its round counts."""

    arm: Arm
    run: Run
    figures: Mapping[str, Figure]
    same_rows: Answer
    replicas_equal: Answer
    used: bool = True


@dataclass(frozen=True)
class ArmRow:
    """One arm over its completed runs in the rounds that count.

    Attributes:
        started, completed: numbers of runs, in all rounds.
    """

    arm: Arm
    started: int
    completed: int
    not_completed: tuple[Run, ...]  # the other runs, in the order of rounds
    spreads: Mapping[str, Spread]  # by the names of `FIGURES`, over the rounds that count
    mean_throughput: Figure  # geometric mean with its interval, over the rounds that count
    against_group: Efficiency  # efficiency against the same group at one replica
    against_serial: Efficiency  # efficiency against the arm without distribution
    of_ceiling: Efficiency  # X(N) ÷ X of N independent replicas
    same_rows: Answer
    replicas_equal: Answer
    not_comparable_because: str  # why the arm must not be ranked; empty: it may be
    certificate: Certificate | None

    @property
    def comparable(self) -> bool:
        """Whether it is proved to compute the same as the others."""
        return not self.not_comparable_because

    @property
    def throughput(self) -> Spread | None:
        """Examples/s, or None if no completed run has it."""
        spread = self.spreads["throughput_examples_s"]
        return None if spread.value is None else spread


@dataclass(frozen=True)
class Summary:
    """All rows of a comparison.

    Attributes:
        arms: all but the breakdown arms; comparable ones are ranked, twins are not.
        quality_metric, quality_target: the target of the workload; empty and None if it has none.
        verdicts: of every pair of comparable arms without twins; the arm that is faster by ratio
            comes first. What is asked first is judged together, and the others are.
        contests: by number of replicas: labels of the two arms that stand for the size, the faster
            by ratio first.
        noise_floor: each twin against its arm, judged alone. A word other than `cannot tell` is a
            false alarm (one of twenty experiments has one) or a fault of the experiment.
    """

    arms: tuple[ArmRow, ...]
    runs: tuple[RunRow, ...]
    serial: str  # label of the arm without distribution; empty if there is none
    quality_metric: str
    quality_target: float | None
    verdicts: tuple[PairVerdict, ...]
    contests: Mapping[int, tuple[str, str]]
    level: float  # the probability of a false word in what is asked first, and again in the others
    noise_floor: tuple[PairVerdict, ...]
    rounds: RoundsUsed  # that count
    breakdown_arms: tuple[ArmRow, ...]  # see `Arm.for_breakdown`; never ranked
    losses: Losses  # of every epoch, held against each other; an arm that departs is not comparable

    def verdict_of(self, first: str, second: str) -> PairVerdict:
        """The verdict of a pair, in the order that is asked for.

        Raises:
            RefusalError: the pair was not judged: an arm is not comparable, or both are the same.
        """
        for one in (*self.verdicts, *self.noise_floor):
            if (one.first, one.second) == (first, second):
                return one
            if (one.first, one.second) == (second, first):
                return turned(one)
        raise RefusalError(
            "Only two different arms that are comparable have a verdict.",
            received=f"{first!r} and {second!r}",
        )

    def widest_of_interest(self) -> tuple[str, float] | None:
        """The pair with the widest interval, and its (high − low) ÷ ratio; None: no pair has one.

        Of interest are pairs of arms of one size, each arm against serial, and each twin against
        its arm. All of them count: to stop when one interval happens to be narrow is to stop too
        early (docs/decisions/0005-verdicts.md). If some pairs have an interval, the width of a pair
        without one is infinite.
        """
        # An arm that never completed a run will have no interval in later rounds either.
        sizes = {row.arm.label: row.arm.replicas for row in self.arms if row.completed}
        widths = [
            (f"{one.first} against {one.second}", relative_width(one.ratio))
            for one in (*self.verdicts, *self.noise_floor)
            if {one.first, one.second} <= sizes.keys()
            and (sizes[one.first] == sizes[one.second] or self.serial in (one.first, one.second))
        ]
        widest = max(widths, key=lambda one: one[1], default=None)
        known = any(width < float("inf") for _, width in widths)
        return widest if known else None


def summarize(comparison: Comparison) -> Summary:
    """Compute every row; runs are in the order in which they were started.

    Raises:
        RefusalError: arms, runs and certificates do not belong together, runs differ in what all
            must share, the processes of one run disagree, or a throughput is not valid.
    """
    arms = arms_by_label(comparison)
    check_alike(comparison, arms)
    rounds = rounds_used(comparison)
    rows = _run_rows(comparison, arms, rounds)
    certificates = certificates_by_arm(comparison)
    untrusted = why_untrusted(comparison)
    measured = [
        _arm_row(arm, rows, certificates.get(arm.twin_of or arm.label), untrusted)
        for arm in comparison.arms
    ]
    measured, losses = _without_departed(measured, rows)
    ranked = [row for row in measured if not row.arm.for_breakdown]
    serial = next((row for row in ranked if row.arm.capabilities.family == "none"), None)
    label = serial.arm.label if serial else ""
    metric, target = _quality_target(comparison.runs)
    samples = {row.arm.label: _samples(row.arm, rows) for row in ranked}
    by_pair, contests, floor = judge(ranked, samples, label, level(comparison), untrusted)
    alone = {row.arm.group: row for row in reversed(ranked) if row.arm.replicas == 1}
    return Summary(
        arms=tuple(
            replace(
                row,
                against_group=efficiency(row, alone.get(row.arm.group), by_pair),
                against_serial=efficiency(row, serial, by_pair),
                of_ceiling=_of_ceiling(row, measured, rows, untrusted),
            )
            for row in ranked
        ),
        runs=rows,
        serial=label,
        quality_metric=metric,
        quality_target=target,
        verdicts=tuple(by_pair.values()),
        contests=contests,
        level=level(comparison),
        noise_floor=floor,
        rounds=rounds,
        breakdown_arms=tuple(row for row in measured if row.arm.for_breakdown),
        losses=losses,
    )


def relative_width(figure: Figure) -> float:
    """(high − low) ÷ value of a 95 % interval; infinity if there is none."""
    if not figure.interval or not figure.value:
        return float("inf")
    return (figure.interval.high - figure.interval.low) / figure.value


def efficiency(
    row: ArmRow, base: ArmRow | None, verdicts: Mapping[frozenset[str], PairVerdict]
) -> Efficiency:
    """Scaling efficiency, X(N) ÷ X(base) ÷ N, of two comparable arms.

    Args:
        row: of the arm.
        base: of the arm that it is measured against; None: the comparison has no such arm.
        verdicts: by the labels of the two arms.
    """
    if base is None:
        return Efficiency(None, NO_BASE)
    label, replicas = base.arm.label, row.arm.replicas
    if why_not := _no_efficiency(row, base):
        return Efficiency(None, why_not, base=label)
    if row is base:
        return Efficiency(1 / replicas, base=label)
    pair = verdicts[frozenset((row.arm.label, label))]
    ratio = (pair if pair.second == label else turned(pair)).ratio
    if ratio.value is None:
        return Efficiency(None, ratio.reason, base=label)
    within = ratio.interval
    interval = within and Interval(within.low / replicas, within.high / replicas)
    return Efficiency(ratio.value / replicas, ratio.reason, interval=interval, base=label)


def _no_efficiency(row: ArmRow, base: ArmRow) -> str:
    """Why an arm has no efficiency against another; empty: it has one."""
    for one, name in ((row, ""), (base, f"{base.arm.label}: ")):
        if not one.comparable:
            return f"{name}not comparable"
    for one, name in ((base, f"{base.arm.label}: "), (row, "")):
        throughput = one.spreads["throughput_examples_s"]
        if throughput.value is None:
            return f"{name}{throughput.reason}"
    return f"it is {row.arm.twin_of} again" if row.arm.twin_of else ""


def _quality_target(runs: Sequence[Run]) -> tuple[str, float | None]:
    """The target that the records name: one for all, because all train one workload."""
    seen = {one.quality_target for run in runs for one in run.records if one.quality_target}
    if len(seen) > 1:
        raise RefusalError(
            "All runs that are compared must have the same quality target.",
            received="; ".join(f"{metric} ≥ {value}" for metric, value in sorted(seen)),
        )
    return seen.pop() if seen else ("", None)


def _run_rows(
    comparison: Comparison, arms: Mapping[str, Arm], rounds: RoundsUsed
) -> tuple[RunRow, ...]:
    """Every run. Diagnostic runs are fed otherwise, so their rows are compared apart."""
    ordered = sorted(comparison.runs, key=lambda run: run.position)
    fed: dict[int, Answer] = {}
    for diagnostic in (False, True):
        of_kind = [run for run in ordered if arms[run.arm].for_breakdown == diagnostic]
        answers = same_rows(of_kind)
        fed |= {id(run): answer for run, answer in zip(of_kind, answers, strict=True)}
    return tuple(
        RunRow(
            arm=arms[run.arm],
            run=run,
            figures=run_figures(run),
            same_rows=fed[id(run)],
            replicas_equal=replicas_equal(run) if run.outcome.completed else "unknown",
            used=run.round in rounds.used,
        )
        for run in ordered
    )


def _arm_row(
    arm: Arm, rows: Sequence[RunRow], certificate: Certificate | None, untrusted: str
) -> ArmRow:
    """The row of an arm without what needs other arms."""
    own = [row for row in rows if row.arm == arm]
    completed = [row for row in own if row.run.outcome.completed]
    counted = [row.figures for row in completed if row.used]
    fed = worst([row.same_rows for row in completed])
    runs = [row.run for row in own]
    mean = geometric_mean_with_interval([one.value for one in _samples(arm, rows)])
    nothing = Efficiency(None)
    lost = [run for run in runs if not run.outcome.completed]
    why_not = FOR_BREAKDOWN if arm.for_breakdown else why_not_comparable(certificate, runs, fed)
    return ArmRow(
        arm=arm,
        started=len(own),
        completed=len(completed),
        not_completed=tuple(sorted(lost, key=lambda run: run.round)),
        spreads={name: spread_of([one[name] for one in counted]) for name in FIGURES},
        mean_throughput=replace(mean, interval=None, reason=untrusted) if untrusted else mean,
        against_group=nothing,
        against_serial=nothing,
        of_ceiling=nothing,
        same_rows=fed,
        replicas_equal=worst([row.replicas_equal for row in completed]),
        not_comparable_because=why_not,
        certificate=None if arm.for_breakdown else certificate,
    )


def _without_departed(
    arms: Sequence[ArmRow], rows: Sequence[RunRow]
) -> tuple[list[ArmRow], Losses]:
    """The arms, of which those that depart in the losses of their epochs are not comparable."""
    certificates = {
        row.arm.label: row.certificate for row in arms if row.comparable and row.certificate
    }
    losses = held_losses(
        [(row.arm, row.run) for row in rows if row.arm.label in certificates], certificates
    )
    departed = losses.departures
    return [
        replace(row, not_comparable_because=str(departed[label]))
        if (label := row.arm.twin_of or row.arm.label) in departed and row.comparable
        else row
        for row in arms
    ], losses


def _samples(arm: Arm, rows: Sequence[RunRow]) -> list[Sample]:
    """The throughputs of the runs of an arm that count and completed."""
    samples = []
    for row in rows:
        value = row.figures["throughput_examples_s"].value
        if row.arm == arm and row.used and value is not None:
            counted = counted_blocks(row.run).items()
            blocks = {number: one.examples / one.seconds for number, one in counted}
            samples.append(
                checked(arm.label, Sample(row.run.round, row.run.position, value, blocks))
            )
    return samples


def _of_ceiling(
    row: ArmRow, measured: Sequence[ArmRow], rows: Sequence[RunRow], untrusted: str
) -> Efficiency:
    """What the arm reaches of as many independent replicas with its settings, round by round."""
    size, settings = row.arm.replicas, row.arm.settings
    ceilings = [
        one.arm
        for one in measured
        if not one.arm.capabilities.one_model
        and (one.arm.replicas, one.arm.settings) == (size, settings)
    ]
    if not ceilings:
        return Efficiency(None, NO_BASE)
    base = ceilings[0].label
    if row.arm.twin_of or not row.comparable:
        why_not = f"it is {row.arm.twin_of} again" if row.arm.twin_of else "not comparable"
        return Efficiency(None, why_not, base=base)
    own, most = (
        {one.round: one.value for one in _samples(arm, rows)} for arm in (row.arm, ceilings[0])
    )
    ratios = [own[number] / most[number] for number in sorted(own.keys() & most.keys())]
    mean = geometric_mean_with_interval(ratios)
    interval = None if untrusted else mean.interval
    return Efficiency(mean.value, untrusted or mean.reason, interval=interval, base=base)
