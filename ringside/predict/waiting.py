"""What replicas will wait for each other, from how the steps of one scatter."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ringside.stats.step_times import counted_epochs, slowest_s, steps_of_times
from ringside_core.specs import Run


def slower_share(runs: Sequence[Run]) -> float:
    """Half the mean difference of two steps (Gini) ÷ the mean step, averaged over the runs.

    Of two equal and independent replicas the slower takes so much longer than their mean, however
    steps are spread. Drift within a run counts as scatter; the first time of an epoch, in which all
    replicas fill their pipelines together, does not.

    Args:
        runs: of one replica.

    Returns:
        Infinite where nobody knows: fewer than two times are left, or an accelerator trained, where
        a step ends for the clock when it was launched (`trainers.clock`).
    """
    shares = []
    for run in runs:
        times, steps = _counted(run)
        if len(times) > 1 and not any(record.machine.gpus for record in run.records):
            # Of k steps timed as one the mean alone is known, which scatters √k times less.
            shares.append(math.sqrt(steps) * half_mean_difference(times) / float(times.mean()))
    return float(np.mean(shares)) if shares else math.inf


def half_mean_difference(values: NDArray[np.float64]) -> float:
    """Half the mean of |x − y| over all pairs of two values."""
    count = len(values)
    # Sorted, the i-th of n is the larger of i − 1 pairs and the smaller of n − i.
    weights = 2 * np.arange(1, count + 1) - count - 1
    return float(weights @ np.sort(values)) / (count * (count - 1))


def _counted(run: Run) -> tuple[NDArray[np.float64], int]:
    """Seconds for each step, of every time but the first of each epoch; and the steps of a time."""
    times, steps = [], []
    for records in counted_epochs(run):
        times.append(slowest_s(records)[1:])
        steps.append(steps_of_times(records[0])[1:])
    if not times:
        return np.zeros(0), 1
    each = np.concatenate(steps)
    most = int(each.max(initial=1))  # the last of an epoch may be of fewer
    return np.concatenate(times)[each == most], most
