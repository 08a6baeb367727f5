"""Estimates with 95 % intervals, or with the reason why there is none."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from ringside.stats.paired import LEAST_ROUNDS

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """The bounds of a 95 % confidence interval."""

    low: float
    high: float


@dataclass(frozen=True)
class Estimate:
    """A value and its 95 % interval.

    Attributes:
        value: None: there is nothing to estimate it from, see `reason`.
        interval: None: see `reason`.
        n: rounds that it is estimated from.
    """

    value: float | None
    interval: Interval | None
    n: int
    reason: str = ""


def too_few(rounds: int, least: int = LEAST_ROUNDS) -> str:
    """Why so many rounds give no interval; empty: they give one."""
    if rounds >= least:
        return ""
    what = "1 round" if rounds == 1 else f"{rounds} rounds"
    return f"{what}: too few for an interval, {least} are needed"


def mean_estimate(values: Sequence[float]) -> Estimate:
    """The mean of independent runs, for quantities that add up.

    mean ± t(0.975, n−1) · s / √n (Student 1908).
    """
    n = len(values)
    if n == 0:
        return Estimate(None, None, 0, too_few(0))
    center = float(np.mean(values))
    if why_not := too_few(n):
        return Estimate(center, None, n, why_not)
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1)) * float(np.std(values, ddof=1))
    half /= math.sqrt(n)
    return Estimate(center, Interval(center - half, center + half), n)


def geometric_estimate(values: Sequence[float]) -> Estimate:
    """The geometric mean of independent runs, for rates and ratios: all values above 0.

    exp(mean ± t(0.975, n−1) · s / √n) of the logarithms.
    """
    logs = mean_estimate([math.log(value) for value in values])
    return exponential(logs)


def exponential(logs: Estimate) -> Estimate:
    """The estimate of exp(x) from that of x."""
    if logs.value is None:
        return logs
    interval = logs.interval and Interval(math.exp(logs.interval.low), math.exp(logs.interval.high))
    return Estimate(math.exp(logs.value), interval, logs.n, logs.reason)
