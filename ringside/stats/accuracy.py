"""Time to accuracy by MLPerf's rule."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ringside.stats.figure import Figure
from ringside.stats.rounds import launches_of
from ringside.stats.run_figures import (
    TOO_SHORT,
    alone_start_s,
    epochs_to_target,
    target_from_alone_s,
    time_to_target_s,
)
from ringside.stats.step_times import chief_of, warm_up
from ringside_core.specs import Comparison, Run
from ringside_core.text import plural

# MLPerf Training asked this of its image benchmarks (submission_runs in mlcommons/logging,
# rcp_checker.py: resnet, ssd, maskrcnn). Without the fastest and the slowest, three runs are left.
LEAST_RUNS = 5


@dataclass(frozen=True)
class ArmAccuracy:
    """Time to accuracy of one arm.

    Attributes:
        reached, of: runs that met the target, and all started runs.
        epochs_to_target, s_per_epoch, startup_s: over the runs in that mean, so that time_s =
            startup_s + epochs_to_target · s_per_epoch; None if there is no mean. An epoch is a
            whole one with its validation, by the mean after warm-up. What is left is paid once: the
            launcher, the start of the process, tracing, the first validation.
    """

    label: str
    reached: int
    of: int
    seeds: int  # different seeds among them
    time_s: Figure  # mean without the fastest and the slowest run; see `accuracy_of`
    epochs_to_target: float | None
    s_per_epoch: float | None
    startup_s: float | None


class _Reach(NamedTuple):
    time_s: float
    epochs: int
    s_per_epoch: float


def accuracy_of(comparison: Comparison) -> tuple[ArmAccuracy, ...]:
    """Time to accuracy of every arm but the breakdown arms, over the launches that count.

    MLPerf Training Rules (mlcommons/training_policies, "Benchmark Results"): the fastest and the
    slowest run are dropped, and the mean of the others is the result. One thing is stricter here:
    a run that never meets the target is not dropped as the slowest; all runs must meet it.
    """
    counts = launches_of(comparison).has
    runs = [run for run in comparison.runs if counts(run)]
    runs = [run for run in runs if time_to_target_s(run).reason != TOO_SHORT]
    return tuple(
        _row(
            arm.label,
            [run for run in runs if run.arm == arm.label],
            alone_start_s(arm, comparison.runs),
        )
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
        return Figure(None, f"{plural(n, 'run')}: {LEAST_RUNS} are needed", n=n)
    return Figure(float(np.mean(sorted(values)[1:-1])), "the rule gives no interval", n=n)


def _row(label: str, runs: Sequence[Run], start_s: float | None) -> ArmAccuracy:
    reached = sorted(one for run in runs if (one := _reach(run, start_s)))
    if not any(record.quality_target for run in runs for record in run.records):
        time_s = Figure(None, "the workload has no target" if runs else "no run")
    elif len(reached) < len(runs):
        time_s = Figure(None, f"{len(reached)} of {len(runs)} reached it", n=len(reached))
    else:
        time_s = olympic_mean([one.time_s for one in reached])
    epochs = s_per_epoch = startup_s = None
    if time_s.value is not None:
        kept = reached[1:-1]
        epochs = float(np.mean([one.epochs for one in kept]))
        training_s = float(np.mean([one.epochs * one.s_per_epoch for one in kept]))
        if np.isfinite(training_s):
            s_per_epoch, startup_s = training_s / epochs, time_s.value - training_s
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


def _reach(run: Run, start_s: float | None) -> _Reach | None:
    """How a run met its target; None: it did not. Its speed is NaN if no epoch is after warm-up."""
    chief, time_s = chief_of(run), target_from_alone_s(run, start_s).value
    if not run.outcome.completed or chief is None or time_s is None:
        return None
    # Whole ones with their validation: while a run is timed, more follow.
    epochs = [e for e in chief.epochs[: run.spec.epochs] if e.steps == chief.epochs[0].steps]
    ends, left_out = [e.end_since_process_start_s for e in epochs], max(1, warm_up(run).epochs)
    counted = len(ends) - left_out
    s_per_epoch = (ends[-1] - ends[left_out - 1]) / counted if counted > 0 else float("nan")
    return _Reach(time_s, epochs_to_target(chief), s_per_epoch)
