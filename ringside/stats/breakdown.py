"""Where the time of a step goes, and why one arm is faster than another."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ringside.stats.accuracy import target_gap
from ringside.stats.breakdown_arms import Role, roles_of, work_of
from ringside.stats.intervals import Estimate, mean_estimate
from ringside.stats.rounds import rounds_used
from ringside.stats.run_figures import counted_epochs, throughput_examples_s
from ringside.stats.step_times import check_records_agree
from ringside_core.specs import (
    Arm,
    Comparison,
    RefusalError,
    Run,
    capabilities_of,
)

COMPUTE = "compute"
INPUT = "input"
STARTED = "framework tax, started"
USED = "framework tax, used"
COMMUNICATION = "exposed communication"

# Each part is the time of one kind of run less that of another, or that time itself.
PARTS: Mapping[str, tuple[Role] | tuple[Role, Role]] = {
    COMPUTE: ("serial_no_input",),
    INPUT: ("arm", "no_input"),
    STARTED: ("unused", "serial"),
    USED: ("alone", "unused"),
    COMMUNICATION: ("arm", "no_reduction"),
}
MEANINGS: Mapping[str, str] = {
    COMPUTE: "one replica's part of the batch, trained without any distribution and with one batch "
    "that is fed again and again",
    INPUT: "what the arm takes longer than when one batch is fed again and again",
    STARTED: "what one replica takes longer than the serial run when the backend is started and "
    "not used",
    USED: "what one replica takes longer when the started backend is used too",
    COMMUNICATION: "what the arm takes longer than when gradients are not combined",
}
ROUNDING = 1e-9  # of the whole: what sums of floats leave over
NEVER_TOGETHER = "in no round all runs that are needed were timed"
NOT_EXPLAINED = "no run explains it: ringside compare --why"


@dataclass(frozen=True)
class Part:
    """One part of a step, or of a difference, in ms per global batch."""

    name: str
    ms: Estimate
    meaning: str


@dataclass(frozen=True)
class Split:
    """Where one arm's time for a global batch goes, ms: whole = Σ parts + remainder.

    Attributes:
        parts: those that are known; none if no run explains the arm.
        remainder: what no part explains: replicas that slow each other, parts that overlap, and
            parts that are not known.
        reason: which parts are not known, and why.
    """

    arm: str
    whole: Estimate
    parts: tuple[Part, ...]
    remainder: Estimate
    reason: str = ""


@dataclass(frozen=True)
class Gap:
    """The time of `first` for a global batch less that of `second`, ms, part by part.

    whole = Σ parts + remainder, each the difference of the two splits in the same round.

    Attributes:
        parts: those that are known of both.
        adds_up: whether the interval of the remainder covers 0; False too where there is none,
            and then `remainder` says why.
        reason: which parts are not known, and why.
        convergence_s: beside it, in seconds until the target: what `first` takes longer as it
            needs more epochs; see `ringside.stats.accuracy.TargetGap`.
    """

    first: str
    second: str
    whole: Estimate
    parts: tuple[Part, ...]
    remainder: Estimate
    adds_up: bool
    reason: str
    convergence_s: Estimate


@dataclass(frozen=True)
class _Account:
    """One arm's parts by name and round, ms.

    Attributes:
        nothing: parts that are 0 by definition, and why.
        unknown: parts that are not known, and why.
    """

    whole: Mapping[int, float]
    parts: Mapping[str, Mapping[int, float]]
    nothing: Mapping[str, str]
    unknown: Mapping[str, str]

    @property
    def explained(self) -> bool:
        """Whether runs were made for this arm; compute may be known from those for another."""
        return not set(self.parts) <= {COMPUTE}

    @property
    def rounds(self) -> set[int]:
        """In which the whole and every known part were measured."""
        return set(self.whole).intersection(*self.parts.values())

    def value(self, name: str, number: int) -> float:
        """Of a part that is known or nothing, in one round."""
        return 0.0 if name in self.nothing else self.parts[name][number]


def split_of(comparison: Comparison, label: str) -> Split:
    """The parts of one arm's time: each term is paired within a round, and then averaged.

    With T(x) = seconds for a global batch of the run x, for an arm with N replicas:
    compute = T(serial at batch B/N, without input); input = T(arm) − T(arm, without input);
    framework tax, started = T(one replica at B/N, unused) − T(serial at B/N); framework tax,
    used = T(one replica at B/N) − T(one replica at B/N, unused); exposed communication =
    T(arm) − T(arm, without reduction); remainder = T(arm) − the sum of these.

    Raises:
        RefusalError: there is no such arm.
    """
    account = _account(comparison, label)
    if not account.whole:
        none = Estimate(None, None, 0, "no run was timed")
        return Split(label, none, (), none, none.reason)
    if not account.explained:
        whole = mean_estimate(list(account.whole.values()))
        return Split(label, whole, (), Estimate(None, None, 0, NOT_EXPLAINED), NOT_EXPLAINED)
    whole, parts, remainder = _estimates(account, None)
    reason = _told(account.unknown)
    return Split(label, whole, parts, remainder, whole.reason if not whole.n else reason)


def gap_between(comparison: Comparison, first: str, second: str) -> Gap:
    """The split of one arm less that of another, round by round.

    Raises:
        RefusalError: there is no such arm.
    """
    mine, yours = (_account(comparison, label) for label in (first, second))
    convergence_s = target_gap(comparison, first, second).convergence_s
    unknown = {**yours.unknown, **mine.unknown}
    why_not = _told(unknown)
    if not (mine.explained and yours.explained):
        why_not = f"{second if mine.explained else first}: {NOT_EXPLAINED}"
    elif len(batches := _batches(comparison, first, second)) > 1:
        why_not = f"they train global batches of {' and '.join(map(str, sorted(batches)))}"
    elif not mine.rounds & yours.rounds:
        why_not = NEVER_TOGETHER
    else:
        whole, parts, remainder = _estimates(mine, yours)
        return Gap(
            first, second, whole, parts, remainder, _covers_0(remainder), why_not, convergence_s
        )
    none = Estimate(None, None, 0, why_not)
    return Gap(first, second, none, (), none, False, why_not, convergence_s)


def _estimates(
    mine: _Account, yours: _Account | None
) -> tuple[Estimate, tuple[Part, ...], Estimate]:
    """Whole, parts and remainder over the rounds in which everything was measured."""
    rounds = sorted(mine.rounds & yours.rounds if yours else mine.rounds)
    accounts = [(1, mine)] + ([(-1, yours)] if yours else [])
    names = [name for name in PARTS if not any(name in account.unknown for _, account in accounts)]
    wholes = [sum(sign * one.whole[number] for sign, one in accounts) for number in rounds]
    by_name = {
        name: [sum(sign * one.value(name, number) for sign, one in accounts) for number in rounds]
        for name in names
    }
    left = [whole - sum(values[k] for values in by_name.values()) for k, whole in enumerate(wholes)]
    size = max((abs(one.whole[number]) for _, one in accounts for number in rounds), default=0.0)
    left = [0.0 if abs(value) <= ROUNDING * size else value for value in left]
    parts = tuple(
        Part(name, _of_part(name, values, [account for _, account in accounts]), MEANINGS[name])
        for name, values in by_name.items()
    )
    return _estimate(wholes), parts, _estimate(left)


def _of_part(name: str, values: Sequence[float], accounts: Sequence[_Account]) -> Estimate:
    """One part over all rounds; where it is 0 by definition, with the reason."""
    reasons = [account.nothing.get(name, "") for account in accounts]
    estimate = _estimate(values)
    return replace(estimate, reason="; ".join(dict.fromkeys(reasons))) if all(reasons) else estimate


def _estimate(values: Sequence[float]) -> Estimate:
    return mean_estimate(values) if values else Estimate(None, None, 0, NEVER_TOGETHER)


def _covers_0(estimate: Estimate) -> bool:
    interval = estimate.interval
    return interval is not None and interval.low <= 0 <= interval.high


def _told(unknown: Mapping[str, str]) -> str:
    return "; ".join(f"{name} is in the remainder: {why}" for name, why in unknown.items())


# What was measured


def _account(comparison: Comparison, label: str) -> _Account:
    """Every part of one arm that its runs and those that explain it give."""
    arms = {arm.label: arm for arm in comparison.arms}
    if label not in arms:
        raise RefusalError("There is no arm of that name in the comparison.", received=repr(label))
    arm, runs = arms[label], _runs_by_arm(comparison)
    whole = _ms_per_batch(runs.get(label, ()))
    parts: dict[str, Mapping[int, float]] = {}
    unknown: dict[str, str] = {}
    nothing = _nothing(arm)
    if whole:
        batch = runs[label][0].spec.global_batch
        done = {
            work_of(other, runs[other.label][0].spec.global_batch): other.label
            for other in reversed(comparison.arms)
            if other.label in runs and not other.twin_of
        }
        times: dict[Role, Mapping[int, float] | str] = {"arm": whole}
        for role, needed in roles_of(arm, batch).items():
            found = done.get(work_of(needed, needed.global_batch or batch))
            measured = _ms_per_batch(runs[found]) if found else {}
            failed = f"no run of {found!r} was timed"
            times[role] = measured or (failed if found else f"{needed.label!r} was not run")
        for name in PARTS:
            if name not in nothing:
                _add_part(name, times, parts, unknown)
    return _Account(whole, parts, nothing, unknown)


def _add_part(
    name: str,
    times: Mapping[Role, Mapping[int, float] | str],
    parts: dict[str, Mapping[int, float]],
    unknown: dict[str, str],
) -> None:
    """One part by rounds in which both of its runs were timed, or why it is not known."""
    measured: list[Mapping[int, float]] = []
    for role in PARTS[name]:
        found = times.get(role, "an asynchronous run cannot leave its reduction out")
        if isinstance(found, str):
            unknown[name] = found
            return
        measured.append(found)
    rounds = set(measured[0]).intersection(*measured[1:])
    if not rounds:
        unknown[name] = "its two runs were never timed in one round"
        return
    whole, less = measured[0], measured[1] if len(measured) > 1 else {}
    parts[name] = {number: whole[number] - less.get(number, 0.0) for number in sorted(rounds)}


def _nothing(arm: Arm) -> dict[str, str]:
    """The parts that an arm cannot have."""
    if capabilities_of(arm.backend).family == "none":
        return dict.fromkeys((STARTED, USED, COMMUNICATION), "0 by definition: no distribution")
    if arm.replicas == 1:
        return {COMMUNICATION: "0 by definition: one replica"}
    return {}


def _batches(comparison: Comparison, *labels: str) -> set[int]:
    return {run.spec.global_batch for run in comparison.runs if run.arm in labels}


def _runs_by_arm(comparison: Comparison) -> dict[str, list[Run]]:
    """The runs of the rounds that count, by the label of their arm."""
    used = rounds_used(comparison).used
    runs: dict[str, list[Run]] = {}
    for run in sorted(comparison.runs, key=lambda run: run.round):
        if run.round in used:
            runs.setdefault(run.arm, []).append(run)
    return runs


def _ms_per_batch(runs: Iterable[Run]) -> dict[int, float]:
    """Time for a global batch by round, ms, of the runs that were timed.

    Σ train_s of the slowest process ÷ Σ steps over the counted epochs; of an asynchronous run times
    its replicas, as each step is of one replica's part of a batch and they run beside each other.
    So the padded last batch of an epoch counts whole in both.
    """
    times = {}
    for run in runs:
        if not run.outcome.completed:
            continue
        check_records_agree(run)
        if throughput_examples_s(run).value is None:
            continue
        epochs = counted_epochs(run)
        seconds = sum(max(epoch.train_s for epoch in records) for records in epochs)
        synchronous = capabilities_of(run.spec.backend).synchronous
        in_batch = 1 if synchronous else run.spec.topology.num_replicas
        times[run.round] = 1000 * seconds * in_batch / sum(records[0].steps for records in epochs)
    return times
