"""Differences of arms from rounds in which both ran, free of drift; for many data sets at once.

Shared by the verdicts and by the simulations that test them. Arrays are (data sets, arms, rounds);
a run that is missing is NaN. Chosen by simulation: docs/decisions/0005-verdicts.md.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]

LEAST_ROUNDS = 3
LEAST_ROUNDS_OF_TWO = 4  # of two arms alone: one degree of freedom goes into the drift
DISTINCT = 1e-9  # of the largest eigenvalue: below it, what rounding leaves of none


@dataclass(frozen=True)
class PairFits:
    """Pairs of arms in many data sets; arrays are (data sets, pairs).

    Attributes:
        difference: mean of log(first) − log(second), without drift where there is an interval, and
            as it was measured where there is none; NaN: no common round.
        error: its standard error; NaN where freedom is 0.
        freedom: degrees of freedom; 0: too few rounds, or drift cannot be told from difference.
        rounds: in which both ran.
        drift_known: whether the arms' places in their rounds differ (data sets).
    """

    difference: Array
    error: Array
    freedom: Array
    rounds: Array
    drift_known: NDArray[np.bool_]

    def half_widths(self, confidence: float) -> Array:
        """Half the width of the interval of `difference`; infinite where there is none."""
        known = self.freedom > 0
        quantile = stats.t.ppf((1 + confidence) / 2, np.where(known, self.freedom, 1))
        return np.where(known, quantile * self.error, np.inf)

    def p_values(self) -> Array:
        """Two-sided, of no difference; 1 where there is no interval."""
        known = self.freedom > 0
        exact = known & (self.error == 0)
        error = np.where(known & ~exact, self.error, 1)
        p = 2 * stats.t.sf(np.abs(self.difference) / error, np.where(known, self.freedom, 1))
        p = np.where(exact, np.where(self.difference == 0, 1.0, 0.0), p)
        return np.where(known, p, 1.0)


def fit_pairs(
    logs: Array, positions: Array, first: NDArray[np.int_], second: NDArray[np.int_]
) -> PairFits:
    """The difference of each pair, by the model log y = arm + round + drift · position + noise.

    The drift is that of all arms (least squares). A pair's own differences, less the drift,
    d = (y₁ − y₂) − drift · (t₁ − t₂), over its m rounds, give the mean and, with h the share of the
    drift's information that is in them, h = Σ(Δt − mean Δt)² ÷ 2S,

        s² = Σ(d − mean d)² ÷ (m − 1 − h),   error² = s² · (1/m + (mean Δt)² ÷ 2S),
        freedom = (m − 1 − h)² ÷ (m − 2 + (1 − h)²)      (Satterthwaite 1946),

    S being Σ of the squared positions within arms and rounds. No arm's noise is assumed to be like
    another's, and what a round has in common cancels. Where nothing can be said of the error, the
    drift is not known well enough either, and d = y₁ − y₂: else a slope from a few runs could lead
    out of everything that was measured.
    """
    drift, information = _drift(logs, positions)
    gap = logs - drift[:, None, None] * positions
    d = gap[:, first] - gap[:, second]
    dt = np.where(np.isnan(d), np.nan, positions[:, first] - positions[:, second])
    m = (~np.isnan(d)).sum(-1).astype(float)
    mean, mean_dt = (_mean(one, -1)[..., 0] for one in (d, dt))
    drift_known = information > 1e-6
    twice = 2 * np.where(drift_known, information, 1.0)[:, None]
    h = np.minimum(np.nansum((dt - mean_dt[..., None]) ** 2, -1) / twice, 1.0)
    left = m - 1 - h
    alone = (~np.isnan(logs)).any(2).sum(1) <= 2  # nobody else shows the drift
    known = (m >= least_rounds(alone)[:, None]) & drift_known[:, None]
    safe = np.where(known, left, 1.0)
    s2 = np.nansum((d - mean[..., None]) ** 2, -1) / safe
    error = np.sqrt(s2 * (1 / np.maximum(m, 1) + mean_dt**2 / twice))
    freedom = np.where(known, safe**2 / np.maximum(m - 2 + (1 - h) ** 2, 1e-9), 0.0)
    plain = _mean(logs[:, first] - logs[:, second], -1)[..., 0]
    difference = _without_rounding(np.where(known, mean, plain))
    return PairFits(
        difference=np.where(m > 0, difference, np.nan),
        error=np.where(known, _without_rounding(error), np.nan),
        freedom=freedom,
        rounds=m,
        drift_known=drift_known,
    )


def least_rounds(alone: NDArray[np.bool_]) -> NDArray[np.int_]:
    """Rounds that an interval needs, where there are only two arms and where there are more."""
    return np.where(alone, LEAST_ROUNDS_OF_TWO, LEAST_ROUNDS)


def holm(p_values: Array) -> Array:
    """P-values adjusted so that all calls of a data set together are right (Holm 1979).

    The i-th smallest of k, times (k − i + 1), and not less than one before it.
    """
    count = p_values.shape[-1]
    order = np.argsort(p_values, axis=-1)
    stepped = np.take_along_axis(p_values, order, -1) * np.arange(count, 0, -1)
    stepped = np.minimum(np.maximum.accumulate(stepped, axis=-1), 1.0)
    adjusted = np.empty_like(stepped)
    np.put_along_axis(adjusted, order, stepped, -1)
    return adjusted


def _drift(logs: Array, positions: Array) -> tuple[Array, Array]:
    """Slope by least squares beside arms and rounds, and Σ of the squares that it rests on."""
    there = np.where(np.isnan(logs), np.nan, positions)
    y, t = _within(logs), _within(there)
    information = np.nansum(t * t, (1, 2))
    slope = np.nansum(t * y, (1, 2)) / np.where(information > 1e-6, information, np.inf)
    return slope, information


def _within(values: Array) -> Array:
    """What is left of values = arm + round + rest, by least squares; whatever runs are missing.

    With W = 1 where there is a run, n its sums over arms, and
    L = diag(Σ over rounds of W) − W·Wᵀ/n, the arms are L⁺ · Σ over rounds of (value − mean of its
    round), and the rounds are means of what is left.
    """
    there = (~np.isnan(values)).astype(float)
    weights = there / np.maximum(there.sum(1, keepdims=True), 1)
    shared = there @ weights.swapaxes(1, 2)
    laplacian = there.sum(2)[..., None] * np.eye(values.shape[1]) - shared
    from_rounds = np.nansum(values - _mean(values, 1), 2, keepdims=True)
    # Arms that never meet, not even through others, have an eigenvalue of 0: any level will do.
    arms = np.linalg.pinv(laplacian, rcond=DISTINCT, hermitian=True) @ from_rounds
    rest: Array = values - arms
    return rest - _mean(rest, 1)


def _mean(values: Array, axis: int) -> Array:
    """Mean of what is there; 0 of nothing."""
    count = (~np.isnan(values)).sum(axis, keepdims=True)
    total: Array = np.nansum(values, axis, keepdims=True)
    mean: Array = total / np.maximum(count, 1)
    return mean


def _without_rounding(values: Array) -> Array:
    """0 in place of what only float64's rounding leaves of equal logarithms."""
    return np.where(np.abs(values) < 1e-12, 0.0, values)
