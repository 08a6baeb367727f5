"""Time to accuracy by MLPerf's rule, divided into throughput and convergence."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from ringside.stats.figure import Figure, mean_with_interval
from ringside.stats.rounds import rounds_used
from ringside.stats.step_times import chief_of, warm_up
from ringside_core.specs import Arm, Comparison, Run
from ringside_core.text import plural

# MLPerf Training asked this of its image benchmarks (submission_runs in mlcommons/logging,
# rcp_checker.py: resnet, ssd, maskrcnn). Without the fastest and the slowest, three runs are left.
LEAST_RUNS = 5
SIGNIFICANCE = 0.05  # of rcp_checker.py
NO_TARGET = "the workload has no target"


@dataclass(frozen=True)
class Reach:
    """How one run reached its target: time_s = startup_s + epochs · s_per_epoch.

    Attributes:
        time_s: from the command (`Execution.launch_s`) to the end of the first epoch that met the
            target, with its validation.
        epochs: trained until then; always whole ones, because quality is measured once per epoch.
        s_per_epoch: training and validation, mean over all epochs after warm-up; None: there are
            no such epochs.
        startup_s: the rest of time_s, paid once: the launcher, start of the process, tracing, the
            first validation. It is more than the start-up that ends with the first step.
    """

    round: int
    seed: int
    time_s: float
    epochs: int
    s_per_epoch: float | None

    @property
    def startup_s(self) -> float | None:
        """See above."""
        return None if self.s_per_epoch is None else self.time_s - self.epochs * self.s_per_epoch


@dataclass(frozen=True)
class ArmAccuracy:
    """Time to accuracy of one arm.

    Attributes:
        reached, of: runs that met the target, and all started runs.
        seeds: different seeds among them.
        time_s: mean without the fastest and the slowest run; see `accuracy_of`.
        epochs_to_target, s_per_epoch, startup_s: over the runs in that mean, so that
            time_s = startup_s + epochs_to_target · s_per_epoch; None if there is no mean.
        too_fast: says that it needs fewer epochs than the arm without distribution; empty: it does
            not.
    """

    label: str
    reached: int
    of: int
    seeds: int
    time_s: Figure
    epochs_to_target: float | None
    s_per_epoch: float | None
    startup_s: float | None
    too_fast: str = ""


@dataclass(frozen=True)
class TargetBreakdown:
    """Time to accuracy of one arm less that of another, in seconds, and its parts.

    With means over the two arms of a round, E of their epochs and s of their seconds per epoch:
    whole = startup + throughput + convergence, convergence = ΔE · s, throughput = Δs · E.
    """

    whole_s: Figure
    startup_s: Figure
    throughput_s: Figure
    convergence_s: Figure


def accuracy_of(comparison: Comparison) -> tuple[ArmAccuracy, ...]:
    """Time to accuracy of every arm but the breakdown arms.

    MLPerf Training Rules (mlcommons/training_policies, "Benchmark Results"): the fastest and the
    slowest run are dropped, and the mean of the others is the result. One thing is stricter here:
    a run that never meets the target is not dropped as the slowest; all runs must meet it. Rounds
    that are left out as disturbed are left out here too.
    """
    arms = [arm for arm in comparison.arms if not arm.for_breakdown]
    runs = {arm.label: _runs_of(comparison, arm) for arm in arms}
    reference = next((arm for arm in arms if arm.capabilities.family == "none"), None)
    rows = []
    for arm in arms:
        too_fast = ""
        if reference is not None and arm is not reference:
            too_fast = _too_fast(runs[arm.label], runs[reference.label], reference.label)
        rows.append(_row(arm.label, runs[arm.label], too_fast))
    return tuple(rows)


def target_breakdown(comparison: Comparison, first: str, second: str) -> TargetBreakdown:
    """Why one arm reaches its target later than another, by rounds in which both reached it."""
    arms = {arm.label: arm for arm in comparison.arms}
    mine, yours = (
        {reach.round: reach for run in _runs_of(comparison, arms[label]) if (reach := _reach(run))}
        for label in (first, second)
    )
    parts_by_round: list[tuple[float, float, float]] = []
    for number in sorted(mine.keys() & yours.keys()):
        a, b = mine[number], yours[number]
        if a.s_per_epoch is None or b.s_per_epoch is None:
            continue
        convergence = (a.epochs - b.epochs) * (a.s_per_epoch + b.s_per_epoch) / 2
        throughput = (a.s_per_epoch - b.s_per_epoch) * (a.epochs + b.epochs) / 2
        whole = a.time_s - b.time_s
        parts_by_round.append((whole - throughput - convergence, throughput, convergence))
    if not parts_by_round:
        none = Figure(None, "in no round both met the target")
        return TargetBreakdown(none, none, none, none)
    whole_s = mean_with_interval([sum(parts) for parts in parts_by_round])
    startup_s, throughput_s, convergence_s = map(
        mean_with_interval, zip(*parts_by_round, strict=True)
    )
    return TargetBreakdown(whole_s, startup_s, throughput_s, convergence_s)


def olympic_mean(values: Sequence[float]) -> Figure:
    """The mean without the lowest and the highest value, of at least LEAST_RUNS.

    There is no interval: MLPerf's rule gives none, and the interval of a trimmed mean (Tukey,
    McLaughlin 1963) covers 93 % instead of 95 % with five runs.
    """
    n = len(values)
    if n < LEAST_RUNS:
        runs = plural(n, "run")
        return Figure(None, f"{runs}: {LEAST_RUNS} are needed", n=n)
    return Figure(float(np.mean(sorted(values)[1:-1])), "the rule gives no interval", n=n)


def _runs_of(comparison: Comparison, arm: Arm) -> list[Run]:
    used = rounds_used(comparison).used
    runs = [run for run in comparison.runs if run.arm == arm.label and run.round in used]
    return sorted(runs, key=lambda run: run.round)


def _reach(run: Run) -> Reach | None:
    """How a run met its target; None: it did not."""
    chief = chief_of(run)
    if not run.outcome.completed or chief is None or chief.quality_target is None:
        return None
    metric, target = chief.quality_target
    for number, epoch in enumerate(chief.epochs, start=1):
        if epoch.validation.get(metric, -math.inf) >= target:
            time_s = epoch.end_since_process_start_s + (run.launch_s(chief) or 0.0)
            return Reach(run.round, run.spec.seed, time_s, number, _s_per_epoch(run))
    return None


def _s_per_epoch(run: Run) -> float | None:
    """Mean seconds from the end of one epoch to the end of the next, after the warm-up."""
    chief = chief_of(run)
    ends = [epoch.end_since_process_start_s for epoch in chief.epochs] if chief else []
    left_out = warm_up(run).epochs
    if len(ends) <= left_out:
        return None
    return (ends[-1] - ends[left_out - 1]) / (len(ends) - left_out)


def _row(label: str, runs: Sequence[Run], too_fast: str) -> ArmAccuracy:
    reached = [reach for run in runs if (reach := _reach(run))]
    if not any(record.quality_target for run in runs for record in run.records):
        time_s = Figure(None, NO_TARGET if runs else "no run")
    elif len(reached) < len(runs):
        time_s = Figure(None, f"{len(reached)} of {len(runs)} reached it", n=len(reached))
    else:
        time_s = olympic_mean([reach.time_s for reach in reached])
    epochs, s_per_epoch, startup_s = _parts(reached, time_s)
    return ArmAccuracy(
        label=label,
        reached=len(reached),
        of=len(runs),
        seeds=len({run.spec.seed for run in runs}),
        time_s=time_s,
        epochs_to_target=epochs,
        s_per_epoch=s_per_epoch,
        startup_s=startup_s,
        too_fast=too_fast,
    )


def _parts(
    reached: Sequence[Reach], time_s: Figure
) -> tuple[float | None, float | None, float | None]:
    """Epochs, seconds per epoch and start-up, over the runs that are in the mean."""
    if time_s.value is None:
        return None, None, None
    kept = sorted(reached, key=lambda reach: reach.time_s)[1:-1]
    epochs = float(np.mean([reach.epochs for reach in kept]))
    per_epoch = [(reach.epochs, reach.s_per_epoch) for reach in kept]
    known = [count * seconds for count, seconds in per_epoch if seconds is not None]
    if len(known) < len(kept):
        return epochs, None, None
    training_s = float(np.mean(known))
    return epochs, training_s / epochs, time_s.value - training_s


# Too fast


def _too_fast(runs: Sequence[Run], reference: Sequence[Run], name: str) -> str:
    """That an arm meets the target in fewer epochs than the reference, beyond chance; or empty.

    It is the rule of MLPerf's reference convergence points: no arm may need significantly fewer
    epochs than the reference (one side, 5 %). Here both train with the same seeds, so the
    differences are tested by changing their signs (Fisher's randomisation test, exact up to 13
    seeds): epochs are few whole numbers, which do not suit a t-test. With different global batches
    there is nothing to compare.
    """
    mine, theirs = _epochs_by_seed(runs), _epochs_by_seed(reference)
    seeds = sorted(mine.keys() & theirs.keys())
    batches = {run.spec.global_batch for run in (*runs, *reference)}
    difference = np.array([mine[seed] - theirs[seed] for seed in seeds], np.float64)
    if len(seeds) < 2 or len(batches) > 1 or difference.mean() >= 0:
        return ""
    test = stats.permutation_test(
        (difference,),
        np.mean,
        permutation_type="samples",
        alternative="less",
        vectorized=True,
        random_state=0,
    )
    if test.pvalue >= SIGNIFICANCE:
        return ""
    own, other = (np.mean([epochs[seed] for seed in seeds]) for epochs in (mine, theirs))
    return (
        f"it meets the target after {own:.1f} epochs, {name} after {other:.1f} "
        f"({len(seeds)} seeds, p = {test.pvalue:.2g}): it does not train the same"
    )


def _epochs_by_seed(runs: Sequence[Run]) -> Mapping[int, int]:
    """Epochs until the target; for a run that did not meet it, one more than it trained."""
    epochs: dict[int, int] = {}
    for run in runs:
        chief = chief_of(run)
        if run.outcome.completed and chief is not None and chief.quality_target is not None:
            reach = _reach(run)
            epochs.setdefault(run.spec.seed, reach.epochs if reach else len(chief.epochs) + 1)
    return epochs
