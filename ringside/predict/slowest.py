"""How long the slowest of many replicas takes, from the steps that one replica made."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import exp1

from ringside.predict.step_growth import between_laws, expected_largest
from ringside.stats.step_times import counted_epochs, slowest_s, steps_of_times, timeline
from ringside_core.specs import Run

Floats = NDArray[np.float64]

SINGLE = 100  # of the longest steps, each is kept by itself
GROUPED = 100  # groups of the others


@dataclass(frozen=True)
class SeenSteps:
    """Steps of one replica, each as a share of the mean step of its run.

    Attributes:
        values: rising, [cells]; the longest steps by themselves, the others in groups, by their
            means.
        counts: steps in each cell, [cells].
    """

    values: tuple[float, ...]
    counts: tuple[int, ...]

    @property
    def count(self) -> int:
        """Steps that were seen."""
        return sum(self.counts)

    def unseen_share(self, ranks: int) -> float:
        """How often the slowest of N replicas takes longer than any step that was seen.

        N ÷ (N + n), whatever the distribution: the longest of N + n equal, independent steps is as
        likely any of them as any other.
        """
        return ranks / (ranks + self.count)


def seen_steps(runs: Sequence[Run]) -> SeenSteps | None:
    """The steps of all runs together; None: they are not known, see `slower_share`.

    If k steps have one time, only their mean is known, which scatters √k times less. So it is taken
    √k times as far from the mean of the run. A stall of one step of k is then seen too short.
    """
    shares = [
        1 + math.sqrt(steps) * (times / times.mean() - 1)
        for run in runs
        for times, steps in [counted_times(run)]
        if _known(run, times)
    ]
    if not shares:
        return None
    ordered = np.sort(np.concatenate(shares))
    if ordered[0] == ordered[-1]:
        return None
    usual, longest = ordered[:-SINGLE], ordered[-SINGLE:]
    groups = [one for one in np.array_split(usual, GROUPED) if len(one)]
    return SeenSteps(
        values=(*(float(one.mean()) for one in groups), *map(float, longest)),
        counts=(*map(len, groups), *[1] * len(longest)),
    )


class Waiting:
    """What replicas wait for the slowest of them, [draws]; element 0 is the best guess.

    The distribution of steps is drawn by the Bayesian bootstrap (Rubin 1981): each of the n steps
    that were seen has a Dirichlet weight, and what is longer than all of them has the weight of one
    more (Hill 1968). n steps say nothing of how long that is. It is taken to be exponential beyond
    the longest step, with a mean that is, as a share of the longest step less the mean, 1/(2·ln n)
    as a guess (that of normal deviates, by extreme-value theory), 0 at the kindest, and 1 at the
    unkindest: the longest is again as far away whenever e times as many steps are seen.

    Without steps it grows as the largest of N normal deviates does.

    Args:
        seen: the steps; None: they are not known.
        generator: draws the weights.
        form: of each draw, see `step_growth`.
    """

    def __init__(
        self, seen: SeenSteps | None, generator: np.random.Generator, form: Floats
    ) -> None:
        self._seen = seen
        self._ones = np.ones_like(form)
        if seen is None:
            return
        guess = np.array([*seen.counts, 1], float)
        drawn = generator.standard_gamma(guess, (len(form) - 1, len(guess)))
        weights = np.vstack([guess, drawn])
        total = np.cumsum(weights, axis=1)
        self._log_below = np.log(total[:, :-1] / total[:, -1:])  # of each v, the share up to it
        self._rare = weights[:, -1] / total[:, -1]
        self._values = np.array(seen.values)
        furthest = seen.values[-1] - float(np.average(seen.values, weights=seen.counts))
        scale = furthest * self._ones
        usual = scale / (2 * math.log(max(seen.count, 2)))
        self._beyond = between_laws(form, 0 * scale, usual, scale)
        self._one = self._longest(1)
        self._two = self._longest(2) - self._one

    def of_two(self) -> Floats:
        """What two replicas wait, ÷ the guess."""
        if self._seen is None:
            return self._ones
        two: Floats = self._two / self._two[0]
        return two

    def growth(self, ranks: int) -> Floats:
        """What N replicas wait ÷ what two wait."""
        if self._seen is None:
            return self._ones * (expected_largest(ranks) / expected_largest(2))
        return (self._longest(ranks) - self._one) / self._two

    def _longest(self, ranks: int) -> Floats:
        """Σ vᵢ (Wᵢᴺ − Wᵢ₋₁ᴺ), and beyond the longest v: v + s·(E of the longest exponential).

        A binomial number of N are beyond, with probability g. The expected largest of so many
        exponentials is Σ (1 − (1−g)ʲ) ÷ j for j = 1 … N; with many, γ + ln Ng + E₁(Ng).
        """
        below = np.exp(ranks * self._log_below)  # [draws, cells]
        inside = below @ self._values - below[:, :-1] @ self._values[1:]
        many = ranks * self._rare
        further = np.euler_gamma + np.log(many) + exp1(many)
        longest: Floats = inside + (1 - below[:, -1]) * self._values[-1] + self._beyond * further
        return longest


def slower_share(runs: Sequence[Run]) -> float:
    """Half the mean difference of two steps (Gini) ÷ the mean step, averaged over the runs.

    The slower of two equal, independent replicas takes this much longer than their mean, for any
    distribution of steps. Drift within a run counts as scatter. The first time of an epoch does not
    count: all replicas fill their pipelines then.

    Args:
        runs: of one replica.

    Returns:
        Infinite if it is not known: fewer than two times are left, or an accelerator trained. Then
        a step ends for the clock when it is launched (`trainers.clock`).
    """
    shares = []
    for run in runs:
        times, steps = counted_times(run)
        if _known(run, times):
            # If k steps have one time, only their mean is known, which scatters √k times less.
            shares.append(math.sqrt(steps) * half_mean_difference(times) / float(times.mean()))
    return float(np.mean(shares)) if shares else math.inf


def _known(run: Run, times: Floats) -> bool:
    return len(times) > 1 and not any(record.machine.gpus for record in run.records)


def half_mean_difference(values: Floats) -> float:
    """Half the mean of |x − y| over all pairs of two values."""
    count = len(values)
    # In sorted order, the i-th of n is the larger one of i − 1 pairs and the smaller one of n − i.
    weights = 2 * np.arange(1, count + 1) - count - 1
    return float(weights @ np.sort(values)) / (count * (count - 1))


def counted_times(run: Run) -> tuple[Floats, int]:
    """Seconds for each step without the first time of each epoch, and the steps of one time.

    Of a live run: of the executions that count.
    """
    if run.blocks:
        line = timeline(run)
        counts = line.block >= 0
        times, steps = (line.seconds.max(axis=0) / line.steps)[counts], line.steps[counts]
        most = int(steps.max(initial=1))
        return times[steps == most], most
    epochs = counted_epochs(run)
    if not epochs:
        return np.zeros(0), 1
    times = np.concatenate([slowest_s(records)[1:] for records in epochs])
    steps = np.concatenate([steps_of_times(records[0])[1:] for records in epochs])
    most = int(steps.max(initial=1))  # the last time of an epoch may be of fewer steps
    return times[steps == most], most
