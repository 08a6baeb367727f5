"""The breakdown: where the time of a step goes, and why one arm is faster than another."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ringside.stats.figure import Figure, mean_with_interval
from ringside.stats.rounds import rounds_used
from ringside.stats.run_figures import throughput_examples_s
from ringside.stats.step_times import check_records_agree, counted_blocks, counted_epochs
from ringside_core.specs import (
    REFERENCE,
    Arm,
    Comparison,
    RefusalError,
    Run,
    Settings,
    Shared,
    backend_options,
)
from ringside_core.specs.run_spec import Ablation

Role = Literal["arm", "no_reduction", "no_input", "alone", "unused", "serial", "serial_no_input"]
Work = tuple[str, str, str, int, int, str]

COMPUTE = "compute"
INPUT = "input"
STARTED = "framework tax, started"
USED = "framework tax, used"
COMMUNICATION = "exposed communication"

# A part is the time of one kind of run, or that time less the time of another kind.
PARTS: Mapping[str, tuple[Role] | tuple[Role, Role]] = {
    COMPUTE: ("serial_no_input",),
    INPUT: ("arm", "no_input"),
    STARTED: ("unused", "serial"),
    USED: ("alone", "unused"),
    COMMUNICATION: ("arm", "no_reduction"),
}
MEANINGS: Mapping[str, str] = {
    COMPUTE: "the time of one replica's part of the batch, trained without distribution and with "
    "one batch that is fed again and again",
    INPUT: "how much longer the arm takes than if one batch is fed again and again",
    STARTED: "how much longer one replica takes than the serial run if the backend is started and "
    "not used",
    USED: "how much longer one replica takes if the started backend is also used",
    COMMUNICATION: "how much longer the arm takes than if gradients are not combined",
}
ROUNDING = 1e-9  # of the whole: a smaller remainder is a rounding error
NEVER_TOGETHER = "there is no round in which all needed runs were timed"
NO_RUNS = "it has no breakdown runs: ringside compare --why"


@dataclass(frozen=True)
class Part:
    """One part of a breakdown, in ms per global batch."""

    name: str
    ms: Figure
    meaning: str


@dataclass(frozen=True)
class Breakdown:
    """Where one arm's time for a global batch goes, ms: whole = Σ parts + remainder.

    Or the time of `arm` less that of `less`, part by part: each number is then the difference of
    the two arms in the same round.

    Attributes:
        parts: the known ones; of two arms, those known of both. Empty: the arm has no breakdown
            runs.
        remainder: the rest of the whole: replicas that slow each other, parts that overlap, and
            parts that are not known.
        reason: which parts are not known, and why.
        less: label of the arm whose time is subtracted; empty: none is.
    """

    arm: str
    whole: Figure
    parts: tuple[Part, ...]
    remainder: Figure
    reason: str = ""
    less: str = ""

    @property
    def adds_up(self) -> bool:
        """Whether the interval of the remainder covers 0; False also if there is no interval."""
        interval = self.remainder.interval
        return interval is not None and interval.low <= 0 <= interval.high


@dataclass(frozen=True)
class _Account:
    """One arm's parts by name and round, ms.

    Attributes:
        nothing: parts that are 0 by definition, with the reason.
        unknown: parts that are not known, with the reason.
    """

    whole: Mapping[int, float]
    parts: Mapping[str, Mapping[int, float]]
    nothing: Mapping[str, str]
    unknown: Mapping[str, str]

    @property
    def has_runs(self) -> bool:
        """Whether the arm has breakdown runs of its own; compute can come from another arm's."""
        return not set(self.parts) <= {COMPUTE}

    @property
    def rounds(self) -> set[int]:
        """The rounds in which the whole and every known part were measured."""
        return set(self.whole).intersection(*self.parts.values())

    def value(self, name: str, number: int) -> float:
        """A part in one round; the part is known, or 0 by definition."""
        return 0.0 if name in self.nothing else self.parts[name][number]


def breakdown_of(comparison: Comparison, label: str) -> Breakdown:
    """The parts of one arm's time: each part is a difference within a round, then averaged.

    T(x) is the seconds that run x takes for a global batch. For an arm with N replicas:
    compute = T(serial at batch B/N, without input); input = T(arm) − T(arm, without input);
    framework tax, started = T(one replica at B/N, unused) − T(serial at B/N); framework tax,
    used = T(one replica at B/N) − T(one replica at B/N, unused); exposed communication =
    T(arm) − T(arm, without reduction); remainder = T(arm) − the sum of these.

    Raises:
        RefusalError: there is no such arm.
    """
    account = _account(comparison, label)
    if not account.whole:
        none = Figure(None, "no run was timed")
        return Breakdown(label, none, (), none, none.reason)
    if not account.has_runs:
        whole = mean_with_interval(list(account.whole.values()))
        return Breakdown(label, whole, (), Figure(None, NO_RUNS), NO_RUNS)
    whole, parts, remainder = _averages(account, None)
    reason = _told(account.unknown) if whole.n else whole.reason
    return Breakdown(label, whole, parts, remainder, reason)


def breakdown_between(comparison: Comparison, first: str, second: str) -> Breakdown:
    """The breakdown of the first arm less that of the second, round by round.

    Raises:
        RefusalError: there is no such arm.
    """
    mine, yours = (_account(comparison, label) for label in (first, second))
    if not (mine.has_runs and yours.has_runs):
        why_not = f"{second if mine.has_runs else first}: {NO_RUNS}"
    elif len(batches := _batches(comparison, first, second)) > 1:
        why_not = f"they train global batches of {' and '.join(map(str, sorted(batches)))}"
    elif not mine.rounds & yours.rounds:
        why_not = NEVER_TOGETHER
    else:
        whole, parts, remainder = _averages(mine, yours)
        reason = _told({**yours.unknown, **mine.unknown})
        return Breakdown(first, whole, parts, remainder, reason, second)
    none = Figure(None, why_not)
    return Breakdown(first, none, (), none, why_not, second)


def _averages(mine: _Account, yours: _Account | None) -> tuple[Figure, tuple[Part, ...], Figure]:
    """Whole, parts and remainder, over the rounds in which all of them were measured."""
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
    return _average(wholes), parts, _average(left)


def _of_part(name: str, values: Sequence[float], accounts: Sequence[_Account]) -> Figure:
    """One part over all rounds; if it is 0 by definition, with the reason."""
    reasons = [account.nothing.get(name, "") for account in accounts]
    average = _average(values)
    return replace(average, reason="; ".join(dict.fromkeys(reasons))) if all(reasons) else average


def _average(values: Sequence[float]) -> Figure:
    return mean_with_interval(values) if values else Figure(None, NEVER_TOGETHER)


def _told(unknown: Mapping[str, str]) -> str:
    return "; ".join(f"{name} is in the remainder: {why}" for name, why in unknown.items())


# What was measured


def _account(comparison: Comparison, label: str) -> _Account:
    """Every part of one arm that is known from its own runs and its breakdown runs."""
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
    """Add one part by the rounds in which both of its runs were timed, or why it is not known."""
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
    """The parts that an arm cannot have, with the reason."""
    if arm.capabilities.family == "none":
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

    Σ train_s of the slowest process ÷ Σ steps, over the counted epochs, or over the blocks of a
    live run (`counted_blocks`). For an asynchronous run it is multiplied by the number of replicas:
    each step is one replica's part of a batch, and replicas work in parallel. The padded last batch
    of an epoch counts as a whole one in both.
    """
    times = {}
    for run in runs:
        if not run.outcome.completed:
            continue
        check_records_agree(run)
        if throughput_examples_s(run).value is None:
            continue
        if run.blocks:
            blocks = counted_blocks(run).values()
            seconds, steps = sum(one.seconds for one in blocks), sum(one.steps for one in blocks)
        else:
            epochs = counted_epochs(run)
            seconds = sum(max(epoch.train_s for epoch in records) for records in epochs)
            steps = sum(records[0].steps for records in epochs)
        synchronous = run.spec.capabilities.synchronous
        in_batch = 1 if synchronous else run.spec.topology.num_replicas
        times[run.round] = 1000 * seconds * in_batch / steps
    return times


# Which arms run for it


def breakdown_arms(arms: Sequence[Arm], shared: Shared) -> tuple[Arm, ...]:
    """The breakdown arms of every arm of the largest size and of the serial one, each once."""
    most = max(arm.replicas for arm in arms)
    found: dict[str, Arm] = {}
    for arm in arms:
        if arm.replicas == most or arm.backend == REFERENCE:
            for one in breakdown_arms_of(arm, shared):
                found.setdefault(one.label, one)
    return tuple(found.values())


def breakdown_arms_of(arm: Arm, shared: Shared) -> tuple[Arm, ...]:
    """The arms that `breakdown_of` needs beside `arm` and the serial reference.

    An arm that several others need has the same label for each of them. A twin and a breakdown arm
    need none themselves.

    Args:
        arm: whose time is broken down.
        shared: what all arms share.
    """
    if arm.twin_of or arm.for_breakdown:
        return ()
    batch, alone = (shared.global_batch_at(size) for size in (arm.replicas, 1))
    reference = _one_replica(REFERENCE, Settings(), alone)
    there = {work_of(arm, batch), work_of(reference, alone)}
    needed = roles_of(arm, batch).values()
    return tuple(one for one in needed if work_of(one, one.global_batch or batch) not in there)


def roles_of(arm: Arm, batch: int) -> Mapping[Role, Arm]:
    """Every kind of run that the breakdown of an arm needs beside its own runs.

    Args:
        arm: whose time is broken down.
        batch: global batch of its runs.
    """
    part = batch // arm.replicas
    several = arm.replicas > 1
    roles: dict[Role, Arm] = {}
    if several and arm.capabilities.synchronous:
        roles["no_reduction"] = _without(arm, "no_reduction", "without reduction")
    roles["no_input"] = (
        _without(arm, "no_input", "without input")
        if several
        else _one_replica(arm, arm.settings, part, "no_input")
    )
    if arm.capabilities.family != "none":
        roles["alone"] = _one_replica(arm, arm.settings, part)
        roles["unused"] = _one_replica(arm, arm.settings, part, "unused")
        roles["serial"] = _one_replica(REFERENCE, arm.settings, part)
    roles["serial_no_input"] = _one_replica(REFERENCE, arm.settings, part, "no_input")
    return roles


def work_of(arm: Arm, batch: int) -> Work:
    """What the runs of an arm do; the label of the arm does not matter."""
    return (
        arm.backend,
        arm.options.model_dump_json(),
        arm.settings.model_dump_json(),
        arm.replicas,
        batch,
        arm.ablation,
    )


def _without(arm: Arm, ablation: Ablation, words: str) -> Arm:
    label = f"{arm.label} {words}"
    return arm.replace(label=label, group=label, ablation=ablation, tuned_from="")


def _one_replica(of: Arm | str, settings: Settings, batch: int, ablation: Ablation = "none") -> Arm:
    """One replica of an arm's backend, or of the serial one with the arm's settings."""
    if isinstance(of, Arm):
        group, backend, options = of.group, of.backend, of.options
    else:
        own = settings.model_dump(exclude_none=True)
        named = [f"{name}={str(value).lower()}" for name, value in own.items()]
        group, backend, options = ":".join([of, *named]), of, backend_options(of, {})
    unused = " unused" if ablation == "unused" else ""
    without = " without input" if ablation == "no_input" else ""
    label = f"{group} ×1{unused} at batch {batch}{without}"
    return Arm(
        label=label,
        group=label,
        backend=backend,
        options=options,
        replicas=1,
        settings=settings,
        ablation=ablation,
        global_batch=batch,
    )
