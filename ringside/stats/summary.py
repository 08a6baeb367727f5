"""A comparison as rows: one for each run, one for each arm, a ratio for each pair, a headline."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ringside.stats.comparability import (
    FOR_BREAKDOWN,
    arms_by_label,
    certificates_by_arm,
    check_same_terms,
    why_not_comparable,
)
from ringside.stats.contest import Contest, contest, sides
from ringside.stats.epoch_losses import Losses, held_losses
from ringside.stats.evidence import Answer, replicas_equal, same_rows, worst
from ringside.stats.figure import Figure, Interval, Spread, geometric_mean_with_interval, spread_of
from ringside.stats.final import Pair, Sample, Samples, checked, final_pairs, turned, with_words
from ringside.stats.rounds import Launches, launches_of, why_untrusted
from ringside.stats.run_figures import (
    FIGURES,
    alone_start_s,
    run_figures,
    target_from_alone_s,
    throughput_examples_s,
)
from ringside.stats.screening import once, ratio_once
from ringside.stats.step_times import counted_blocks
from ringside_core.specs import Arm, Certificate, Comparison, RefusalError, Run

MOST_OF_INPUT = 1.1  # of what the data yield alone; more is another reading than was timed


@dataclass(frozen=True)
class Efficiency(Figure):
    """Scaling efficiency X(N) ÷ (N · X(base)), from the ratio of throughputs of the pair.

    Strong or weak as the comparison's scaling. There is no value if the base or the arm has no
    throughput, or if one of them is not comparable.

    Attributes:
        base: label of the arm that it is measured against; empty: the comparison has no such arm.
    """

    base: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class RunRow:
    """One run and its figures; `used` says whether its arm's figures are computed from it."""

    arm: Arm
    run: Run
    figures: Mapping[str, Figure]
    same_rows: Answer
    replicas_equal: Answer
    used: bool = True


@dataclass(frozen=True)
class ArmRow:
    """One arm over its completed runs that count: of the final, or else the one of the screening.

    Attributes:
        started, completed: numbers of all its runs.
    """

    arm: Arm
    started: int
    completed: int
    not_completed: tuple[Run, ...]  # the other runs, in the order of launches
    spreads: Mapping[str, Spread]  # by the names of `FIGURES`
    mean_throughput: Figure  # geometric mean over launches, with its interval
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


@dataclass(frozen=True)
class Summary:
    """All rows of a comparison.

    Attributes:
        arms: all but the breakdown arms; comparable ones are ranked, twins are not.
        quality_metric, quality_target: the target of the workload; empty and None if it has none.
        pairs: of comparable arms, the arm that is faster by ratio first. Those of two arms of the
            final come from its launches; others from the screening, without an interval.
        contest: the headline; None: there is no final with two comparable contenders.
        noise_floor: a twin against its arm, judged alone; None: there is no twin in the final. One
            of twenty such intervals leaves out 1; if it does, that or the experiment is at fault.
        launches: that count.
        inflation: see `final_pairs`.
        input_examples_s: as in the comparison.
        untrusted: why no interval can be trusted; empty: they can be.
    """

    arms: tuple[ArmRow, ...]
    runs: tuple[RunRow, ...]
    serial: str  # label of the arm without distribution; empty if there is none
    quality_metric: str
    quality_target: float | None
    pairs: tuple[Pair, ...]
    contest: Contest | None
    noise_floor: Pair | None
    launches: Launches
    inflation: float | None
    input_examples_s: float | None
    untrusted: str
    breakdown_arms: tuple[ArmRow, ...]  # see `Arm.for_breakdown`; never ranked
    losses: Losses  # of every epoch, held against each other; an arm that departs is not comparable

    def of_input(self, row: "ArmRow") -> float | None:
        """The speed of an arm as a part of what its data yield alone; None: it is not known.

        It is not where the arm is faster: processes read a part each, or the data are kept.
        """
        rate = row.mean_throughput.value
        if rate is None or self.input_examples_s is None or row.arm.settings.input:
            return None
        part = rate / self.input_examples_s
        return part if part <= MOST_OF_INPUT else None

    def pair_of(self, first: str, second: str) -> Pair:
        """Two arms, in the order that is asked for.

        Raises:
            RefusalError: an arm is not comparable, or both are the same.
        """
        for one in self.pairs:
            if one.names == {first, second}:
                return one if one.first == first else turned(one)
        raise RefusalError(
            "Only two different arms that are comparable have a ratio.",
            received=f"{first!r} and {second!r}",
        )


def summarize(comparison: Comparison) -> Summary:
    """Compute every row; runs are in the order in which they were started.

    Raises:
        RefusalError: arms, runs and certificates do not belong together, runs differ in what all
            must share, the processes of one run disagree, or a throughput is not valid.
    """
    arms = arms_by_label(comparison)
    check_same_terms(comparison, arms)
    launches, samples = launches_of(comparison), samples_of(comparison)
    rows = _run_rows(comparison, arms, launches)
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
    final = {
        row.arm.label: samples[row.arm.label]
        for row in ranked
        if row.comparable and row.arm.label in launches.finalists
    }
    of_final, inflation = final_pairs(final, launches.final)
    if untrusted:
        of_final = [
            Pair(one.first, one.second, one.ratio.without_interval(untrusted)) for one in of_final
        ]
    own = [row.arm.label for row in ranked if row.comparable and not row.arm.twin_of]
    pairs = with_words(of_final, label, own)
    there = {pair.names for pair in pairs}
    rest = (names for names in itertools.combinations(own, 2) if frozenset(names) not in there)
    screened = once(samples, launches.first)
    pairs += [ratio_once(screened, *names) for names in rest]
    by_names = {pair.names: pair for pair in pairs}
    twin = next((row.arm for row in ranked if row.arm.twin_of and row.arm.label in final), None)
    floor = by_names.get(frozenset((twin.label, twin.twin_of))) if twin else None
    alone = {row.arm.group: row for row in reversed(ranked) if row.arm.replicas == 1}
    return Summary(
        arms=tuple(
            replace(
                row,
                against_group=efficiency(
                    row, alone.get(row.arm.group), by_names, f"no {row.arm.group} ×1"
                ),
                against_serial=efficiency(row, serial, by_names, "no arm without distribution"),
                of_ceiling=_of_ceiling(row, measured, rows, untrusted),
            )
            for row in ranked
        ),
        runs=rows,
        serial=label,
        quality_metric=metric,
        quality_target=target,
        pairs=tuple(pairs),
        contest=_contest([row for row in ranked if row.arm.label in final], by_names),
        noise_floor=floor,
        launches=launches,
        inflation=inflation,
        input_examples_s=comparison.input_examples_s,
        untrusted=untrusted,
        breakdown_arms=tuple(row for row in measured if row.arm.for_breakdown),
        losses=losses,
    )


def samples_of(comparison: Comparison) -> Samples:
    """The throughputs of all completed runs, by label of the arm and number of the launch.

    Raises:
        RefusalError: a throughput is not valid.
    """
    found: dict[str, dict[int, Sample]] = {arm.label: {} for arm in comparison.arms}
    for run in comparison.runs:
        value = throughput_examples_s(run).value if run.outcome.completed else None
        if value is not None:
            counted = counted_blocks(run).items()
            blocks = {number: one.examples / one.seconds for number, one in counted}
            found[run.arm][run.round] = checked(run.arm, run.round, Sample(value, blocks))
    return found


def _contest(rows: Sequence[ArmRow], pairs: Mapping[frozenset[str], Pair]) -> Contest | None:
    """The headline of the largest size of the final."""
    arms = [row.arm for row in rows if row.arm.capabilities.family != "none"]
    size = max((arm.replicas for arm in arms if not arm.twin_of), default=0)
    rates = {row.arm.label: row.mean_throughput.value or 0.0 for row in rows}
    families = {
        arm.label: arm.capabilities.family
        for arm in arms
        if arm.replicas == size and not arm.twin_of
    }
    both = sides(families, rates)
    return contest(size, *both, pairs) if both else None


def efficiency(
    row: ArmRow, base: ArmRow | None, pairs: Mapping[frozenset[str], Pair], no_base: str
) -> Efficiency:
    """Scaling efficiency, X(N) ÷ X(base) ÷ N, of two comparable arms.

    Args:
        row: of the arm.
        base: of the arm that it is measured against; None: the comparison has no such arm.
        pairs: by the labels of the two arms.
        no_base: says so.
    """
    if base is None:
        return Efficiency(None, no_base)
    label, replicas = base.arm.label, row.arm.replicas
    if why_not := _no_efficiency(row, base):
        return Efficiency(None, why_not, base=label)
    if row is base:
        return Efficiency(1 / replicas, base=label)
    pair = pairs[frozenset((row.arm.label, label))]
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
    comparison: Comparison, arms: Mapping[str, Arm], launches: Launches
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
            used=launches.has(run),
        )
        for run in ordered
    )


def _arm_row(
    arm: Arm, rows: Sequence[RunRow], certificate: Certificate | None, untrusted: str
) -> ArmRow:
    """The row of an arm without what needs other arms."""
    own = [row for row in rows if row.arm == arm]
    completed = [row for row in own if row.run.outcome.completed]
    start = alone_start_s(arm, [row.run for row in rows])
    counted = [
        {**row.figures, "time_to_target_s": target_from_alone_s(row.run, start)}
        for row in completed
        if row.used
    ]
    fed = worst([row.same_rows for row in completed])
    runs = [row.run for row in own]
    mean = geometric_mean_with_interval(list(rates_of(arm, rows).values()))
    nothing = Efficiency(None)
    lost = [run for run in runs if not run.outcome.completed]
    why_not = FOR_BREAKDOWN if arm.for_breakdown else why_not_comparable(certificate, runs, fed)
    return ArmRow(
        arm=arm,
        started=len(own),
        completed=len(completed),
        not_completed=tuple(sorted(lost, key=lambda run: run.round)),
        spreads={name: spread_of([one[name] for one in counted]) for name in FIGURES}
        | ({} if start is None else {"startup_s": spread_of([Figure(start)])}),
        mean_throughput=mean.without_interval(untrusted),
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


def rates_of(arm: Arm, rows: Sequence[RunRow]) -> dict[int, float]:
    """Examples/s of the runs of an arm that count, by launch."""
    return values_of(arm, rows, "throughput_examples_s")


def values_of(arm: Arm, rows: Sequence[RunRow], figure: str) -> dict[int, float]:
    """A figure of the runs of an arm that count, by launch; of those that have it."""
    found = {}
    for row in rows:
        value = row.figures[figure].value
        if row.arm == arm and row.used and value is not None:
            found[row.run.round] = value
    return found


def _of_ceiling(
    row: ArmRow, measured: Sequence[ArmRow], rows: Sequence[RunRow], untrusted: str
) -> Efficiency:
    """What the arm reaches of as many independent replicas with its settings, by launch."""
    size, settings = row.arm.replicas, row.arm.settings
    ceilings = [
        one.arm
        for one in measured
        if not one.arm.capabilities.one_model
        and (one.arm.replicas, one.arm.settings) == (size, settings)
    ]
    if not ceilings:
        return Efficiency(None, "no independent replicas with its settings")
    base = ceilings[0].label
    if row.arm.twin_of or not row.comparable:
        why_not = f"it is {row.arm.twin_of} again" if row.arm.twin_of else "not comparable"
        return Efficiency(None, why_not, base=base)
    own, most = (rates_of(arm, rows) for arm in (row.arm, ceilings[0]))
    ratios = [own[number] / most[number] for number in sorted(own.keys() & most.keys())]
    mean = geometric_mean_with_interval(ratios).without_interval(untrusted)
    return Efficiency(mean.value, mean.reason, interval=mean.interval, base=base)
