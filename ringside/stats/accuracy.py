"""Time to accuracy by MLPerf's rule."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ringside.stats.figure import Figure
from ringside.stats.rounds import rounds_used
from ringside.stats.step_times import chief_of, warm_up
from ringside_core.specs import Arm, Comparison, Run
from ringside_core.text import plural

# MLPerf Training asked this of its image benchmarks (submission_runs in mlcommons/logging,
# rcp_checker.py: resnet, ssd, maskrcnn). Without the fastest and the slowest, three runs are left.
LEAST_RUNS = 5
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
    """

    label: str
    reached: int
    of: int
    seeds: int
    time_s: Figure
    epochs_to_target: float | None
    s_per_epoch: float | None
    startup_s: float | None


def accuracy_of(comparison: Comparison) -> tuple[ArmAccuracy, ...]:
    """Time to accuracy of every arm but the breakdown arms.

    MLPerf Training Rules (mlcommons/training_policies, "Benchmark Results"): the fastest and the
    slowest run are dropped, and the mean of the others is the result. One thing is stricter here:
    a run that never meets the target is not dropped as the slowest; all runs must meet it. Rounds
    that are left out as disturbed are left out here too.
    """
    return tuple(
        _row(arm.label, _runs_of(comparison, arm))
        for arm in comparison.arms
        if not arm.for_breakdown
    )


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


def _row(label: str, runs: Sequence[Run]) -> ArmAccuracy:
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
