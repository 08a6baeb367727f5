"""A figure: one number with its 95 % interval if it has one, or the reason why there is none."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
LEAST_LAUNCHES = 3  # for an interval


@dataclass(frozen=True)
class Interval:
    """The bounds of a 95 % confidence interval."""

    low: float
    high: float


@dataclass(frozen=True)
class Figure:
    """One number, or the reason why there is none.

    Attributes:
        n: how many launches the value is computed from; 0 for the value of a single run.
    """

    value: float | None  # None: there is none; see `reason`
    reason: str = ""  # why there is no value, or why the value has no interval
    interval: Interval | None = field(default=None, kw_only=True)  # 95 %; None: there is none
    n: int = field(default=0, kw_only=True)

    def without_interval(self, why: str) -> Self:
        """The figure without its interval, for a reason; with it if the reason is empty."""
        return self if not why or self.value is None else replace(self, interval=None, reason=why)

    def covers(self, value: float) -> bool:
        """Whether the interval holds this value; False too where there is no interval."""
        within = self.interval
        return within is not None and within.low <= value <= within.high


@dataclass(frozen=True)
class Spread(Figure):
    """One figure over the completed runs of an arm: its median and range. A range is no interval.

    Attributes:
        reason: why some runs, or all of them, do not have the figure.
        n: runs that have the figure.
        lowest, highest: not a number if no run has the figure.
    """

    of: int = field(default=0, kw_only=True)  # completed runs
    lowest: float = field(default=math.nan, kw_only=True)
    highest: float = field(default=math.nan, kw_only=True)


def spread_of(figures: Sequence[Figure]) -> Spread:
    """Median, lowest and highest of the figures that have a value."""
    values = [figure.value for figure in figures if figure.value is not None]
    reasons = list(dict.fromkeys(figure.reason for figure in figures if figure.value is None))
    text = "; ".join(reasons)
    if not values:
        return Spread(None, text or "no run completed", of=len(figures))
    return Spread(
        statistics.median(values),
        text,
        n=len(values),
        of=len(figures),
        lowest=min(values),
        highest=max(values),
    )


def too_few(launches: int) -> str:
    """Why this many launches give no interval; empty: they give one."""
    if launches >= LEAST_LAUNCHES:
        return ""
    if launches == 1:
        return "one launch"
    return f"{launches} launches: too few for an interval, {LEAST_LAUNCHES} are needed"


def mean_with_interval(values: Sequence[float]) -> Figure:
    """The mean of independent runs, for quantities that add up.

    mean ± t(0.975, n−1) · s / √n (Student 1908).
    """
    n = len(values)
    if n == 0:
        return Figure(None, too_few(0))
    center = float(np.mean(values))
    if why_not := too_few(n):
        return Figure(center, why_not, n=n)
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1)) * float(np.std(values, ddof=1))
    half /= math.sqrt(n)
    return Figure(center, interval=Interval(center - half, center + half), n=n)


def geometric_mean_with_interval(values: Sequence[float]) -> Figure:
    """The geometric mean of independent runs, for rates and ratios: all values above 0.

    exp(mean ± t(0.975, n−1) · s / √n) of the logarithms.
    """
    return exponential(mean_with_interval([math.log(value) for value in values]))


def exponential(logs: Figure) -> Figure:
    """The figure of exp(x), from the figure of x."""
    if logs.value is None:
        return logs
    within = logs.interval and Interval(math.exp(logs.interval.low), math.exp(logs.interval.high))
    return Figure(math.exp(logs.value), logs.reason, interval=within, n=logs.n)
