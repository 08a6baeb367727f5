"""The breakdown: where the time of a step goes, and why one arm is faster than another."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ringside.stats.breakdown_arms import Role, roles_of, work_of
from ringside.stats.figure import Figure, mean_with_interval
from ringside.stats.rounds import launches_of, why_untrusted
from ringside.stats.run_figures import throughput_examples_s
from ringside.stats.step_times import (
    counted_blocks,
    counted_epochs,
    together_s,
)
from ringside_core.specs import Arm, Comparison, RefusalError, Run

COMPUTE = "compute"
INPUT = "input"
STARTED = "framework tax, started"
USED = "framework tax, used"
CONTENTION = "contention"
COMMUNICATION = "exposed communication"
# Their runs serve every arm of a size: an arm without breakdown runs of its own has them too.
OF_EVERY_ARM = frozenset({COMPUTE, CONTENTION})

# A part is the time of one kind of run, or that time less the time of another kind.
PARTS: Mapping[str, tuple[Role] | tuple[Role, Role]] = {
    COMPUTE: ("serial_no_input",),
    INPUT: ("arm", "no_input"),
    STARTED: ("unused", "serial"),
    USED: ("alone", "unused"),
    CONTENTION: ("independent", "serial"),
    COMMUNICATION: ("arm", "no_reduction"),
}
MEANINGS: Mapping[str, str] = {
    COMPUTE: "the time of one replica's part of the batch, trained without distribution and with "
    "one batch that is fed again and again",
    INPUT: "how much longer the arm takes than if one batch is fed again and again",
    STARTED: "how much longer one replica takes than the serial run if the backend is started and "
    "not used",
    USED: "how much longer one replica takes if the started backend is also used",
    CONTENTION: "how much longer a replica takes while others compute beside it, each on its own "
    "part of the batch, and nothing is combined: they share caches, memory and the clock rate",
    COMMUNICATION: "how much longer the arm takes than if gradients are not combined",
}
ROUNDING = 1e-9  # of the whole: a smaller remainder is a rounding error
NEVER_TOGETHER = "there is no round in which all needed runs were timed"
CANNOT_LEAVE_OUT = "an asynchronous run cannot leave its reduction out"
NO_RUNS = "it has no breakdown runs: ringside compare --why"


@dataclass(frozen=True)
class Part:
    """One part of a breakdown, in ms per global batch; MEANINGS has what it is."""

    name: str
    ms: Figure


@dataclass(frozen=True)
class Breakdown:
    """Where one arm's time for a global batch goes, ms: whole = Σ parts + remainder.

    Or the time of `arm` less that of `less`, part by part: each number is then the difference of
    the two arms in the same round.

    Attributes:
        parts: the known ones; of two arms, those known of both. Empty: the arm has no breakdown
            runs.
    """

    arm: str
    whole: Figure
    parts: tuple[Part, ...]
    remainder: Figure  # the rest of the whole: parts that overlap, and parts that are not known
    reason: str = ""  # which parts are not known, and why
    less: str = ""  # label of the arm whose time is subtracted; empty: none is


@dataclass(frozen=True)
class _Account:
    """One arm's time by round, and its parts by name and round, ms; and why others are missing."""

    whole: Mapping[int, float]
    parts: Mapping[str, Mapping[int, float]]
    nothing: Mapping[str, str]  # parts that are 0 by definition
    unknown: Mapping[str, str]

    @property
    def has_runs(self) -> bool:
        """Whether the arm has breakdown runs of its own."""
        return not set(self.parts) <= OF_EVERY_ARM

    @property
    def rounds(self) -> set[int]:
        """The rounds in which the whole and every known part were measured."""
        return set(self.whole).intersection(*self.parts.values())


def breakdown_of(comparison: Comparison, label: str) -> Breakdown:
    """The parts of one arm's time: each part is a difference within a round, then averaged.

    PARTS says which runs each part is computed from; the remainder is the whole less all parts.

    Raises:
        RefusalError: there is no such arm.
    """
    account = _account(comparison, label)
    if not account.whole:
        none = Figure(None, "no run was timed")
        return Breakdown(label, none, (), none, none.reason)
    if not account.has_runs:
        whole = mean_with_interval(list(account.whole.values()))
        whole = whole.without_interval(why_untrusted(comparison))
        return Breakdown(label, whole, (), Figure(None, NO_RUNS), NO_RUNS)
    whole, parts, remainder = _averages(comparison, account, None)
    reason = _why_unknown(account.unknown) if whole.n else whole.reason
    return Breakdown(label, whole, parts, remainder, reason)


def breakdown_between(comparison: Comparison, first: str, second: str) -> Breakdown:
    """The breakdown of the first arm less that of the second, round by round.

    Raises:
        RefusalError: there is no such arm.
    """
    mine, yours = (_account(comparison, label) for label in (first, second))
    batches = {run.spec.global_batch for run in comparison.runs if run.arm in (first, second)}
    if not (mine.has_runs and yours.has_runs):
        why_not = f"{second if mine.has_runs else first}: {NO_RUNS}"
    elif len(batches) > 1:
        why_not = f"they train global batches of {' and '.join(map(str, sorted(batches)))}"
    elif not mine.rounds & yours.rounds:
        why_not = NEVER_TOGETHER
    else:
        whole, parts, remainder = _averages(comparison, mine, yours)
        reason = _why_unknown({**yours.unknown, **mine.unknown})
        return Breakdown(first, whole, parts, remainder, reason, second)
    none = Figure(None, why_not)
    return Breakdown(first, none, (), none, why_not, second)


def _averages(
    comparison: Comparison, mine: _Account, yours: _Account | None
) -> tuple[Figure, tuple[Part, ...], Figure]:
    """Whole, parts and remainder, over the rounds in which all of them were measured."""
    untrusted = why_untrusted(comparison)

    def average(values: Sequence[float]) -> Figure:
        if not values:
            return Figure(None, NEVER_TOGETHER)
        return mean_with_interval(values).without_interval(untrusted)

    rounds = sorted(mine.rounds & yours.rounds if yours else mine.rounds)
    accounts = [(1, mine)] + ([(-1, yours)] if yours else [])
    wholes = [sum(sign * one.whole[number] for sign, one in accounts) for number in rounds]
    left, parts = list(wholes), []
    for name in PARTS:
        if any(name in one.unknown for _, one in accounts):
            continue
        zeros = dict.fromkeys(rounds, 0.0)
        of_each = [(sign, one.parts.get(name, zeros)) for sign, one in accounts]
        values = [sum(sign * part[number] for sign, part in of_each) for number in rounds]
        left = [rest - value for rest, value in zip(left, values, strict=True)]
        reasons = [one.nothing.get(name, "") for _, one in accounts]
        ms = average(values)
        if all(reasons):
            ms = replace(ms, reason="; ".join(dict.fromkeys(reasons)))
        parts.append(Part(name, ms))
    size = max((abs(one.whole[number]) for _, one in accounts for number in rounds), default=0.0)
    left = [0.0 if abs(value) <= ROUNDING * size else value for value in left]
    return average(wholes), tuple(parts), average(left)


def _why_unknown(unknown: Mapping[str, str]) -> str:
    return "; ".join(f"{name} is in the remainder: {why}" for name, why in unknown.items())


# What was measured


def _account(comparison: Comparison, label: str) -> _Account:
    """Every part of one arm that is known from its own runs and its breakdown runs."""
    arms = {arm.label: arm for arm in comparison.arms}
    if label not in arms:
        raise RefusalError("There is no arm of that name in the comparison.", received=repr(label))
    arm, left_out = arms[label], launches_of(comparison).left_out
    runs: dict[str, list[Run]] = {}
    for run in sorted(comparison.runs, key=lambda run: run.round):
        if run.round not in left_out:
            runs.setdefault(run.arm, []).append(run)
    whole = _ms_per_batch(runs.get(label, ()))
    nothing = _nothing(arm)
    parts: dict[str, Mapping[int, float]] = {}
    unknown: dict[str, str] = {}
    times = _times(comparison, arm, runs) if whole else {}
    for name in PARTS if whole else ():
        if name in nothing:
            continue
        found = [times.get(role, CANNOT_LEAVE_OUT) for role in PARTS[name]]
        measured = [one for one in found if not isinstance(one, str)]
        rounds = set(measured[0]).intersection(*measured) if measured else set()
        if failed := [one for one in found if isinstance(one, str)]:
            unknown[name] = failed[0]
        elif not rounds:
            unknown[name] = "its two runs were never timed in one round"
        else:
            of, less = measured[0], dict[int, float]() if len(measured) < 2 else measured[1]
            parts[name] = {number: of[number] - less.get(number, 0.0) for number in sorted(rounds)}
    return _Account(whole, parts, nothing, unknown)


def _times(
    comparison: Comparison, arm: Arm, runs: Mapping[str, Sequence[Run]]
) -> dict[Role, Mapping[int, float] | str]:
    """Time for a global batch of each kind of run by round, ms; or why it is not known."""
    batch = runs[arm.label][0].spec.global_batch
    done = {
        work_of(other, runs[other.label][0].spec.global_batch): other.label
        for other in reversed(comparison.arms)
        if other.label in runs and not other.twin_of
    }
    times: dict[Role, Mapping[int, float] | str] = {"arm": _ms_per_batch(runs[arm.label])}
    for role, needed in roles_of(arm, batch).items():
        found = done.get(work_of(needed, needed.global_batch or batch))
        measured = _ms_per_batch(runs[found]) if found else {}
        failed = f"no run of {found!r} was timed"
        times[role] = measured or (failed if found else f"{needed.label!r} was not run")
    return times


def _nothing(arm: Arm) -> dict[str, str]:
    """The parts that an arm cannot have, with the reason."""
    if arm.capabilities.family == "none":
        parts = (STARTED, USED, CONTENTION, COMMUNICATION)
        return dict.fromkeys(parts, "0 by definition: no distribution")
    if arm.replicas == 1:
        return dict.fromkeys((CONTENTION, COMMUNICATION), "0 by definition: one replica")
    return {}


def _ms_per_batch(runs: Iterable[Run]) -> dict[int, float]:
    """Time for a global batch by round, ms: Σ seconds ÷ Σ steps of what counts of timed runs."""
    times = {}
    for run in runs:
        if not run.outcome.completed:
            continue
        if throughput_examples_s(run).value is None:
            continue
        if run.blocks:
            blocks = counted_blocks(run).values()
            seconds, steps = sum(one.seconds for one in blocks), sum(one.steps for one in blocks)
        else:
            epochs = counted_epochs(run)
            seconds = sum(together_s(run, [one.train_s for one in records]) for records in epochs)
            steps = sum(records[0].steps for records in epochs)
        # A step of an asynchronous run is one replica's part of a batch, and they work in parallel.
        synchronous = run.spec.capabilities.synchronous
        in_batch = 1 if synchronous else run.spec.topology.num_replicas
        times[run.round] = 1000 * seconds * in_batch / steps
    return times
