"""How much two arms differ, and how sure that is: the arithmetic behind the verdicts.

It takes many data sets at once, because the simulations that test it use it too. Arrays are
(data sets, arms, rounds), or (data sets, arms, rounds, passes) for live rounds; what is missing is
NaN. The method was chosen by simulation: docs/decisions/0005-verdicts.md.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ringside.stats.figure import LEAST_ROUNDS

Array = NDArray[np.float64]
Indices = NDArray[np.int_]

LEAST_ROUNDS_OF_TWO = 4  # fresh rounds of two arms alone: the drift takes one degree of freedom
LEAST_PASSES = 3  # in which both arms have a block: of fewer nobody can say which one was disturbed
MOST_BORROWED = 4.0  # degrees of freedom that the other pairs lend, see `_borrowed`
# The typical variance is this quantile of the pairs': below the median, so that one noisy arm of
# four, which is in half of the pairs, does not make it.
TYPICAL = 0.4
DISTINCT = 1e-9  # of the largest eigenvalue: a smaller eigenvalue is 0 with rounding errors


@dataclass(frozen=True)
class PairFits:
    """Pairs of arms in many data sets; arrays are (data sets, pairs).

    Attributes:
        difference: mean of log(first) − log(second). In fresh rounds the drift is removed if there
            is an interval, else not; NaN: no common round.
        freedom: degrees of freedom, with what is borrowed from the other pairs; 0: too few rounds,
            or drift and difference cannot be separated.
    """

    difference: Array
    error: Array  # its standard error; NaN if freedom is 0
    freedom: Array
    rounds: Array  # in which both ran

    def half_widths(self, level: Array | float) -> Array:
        """What lies beyond `difference` ± this has so much probability in the two tails together.

        Infinite where there is no interval.
        """
        known = self.freedom > 0
        quantile = stats.t.isf(np.asarray(level) / 2, np.where(known, self.freedom, 1))
        return np.where(known, quantile * self.error, np.inf)

    def p_values(self) -> Array:
        """Two-sided p-value of no difference; 1 if there is no interval."""
        known = self.freedom > 0
        exact = known & (self.error == 0)
        error = np.where(known & ~exact, self.error, 1)
        p = 2 * stats.t.sf(np.abs(self.difference) / error, np.where(known, self.freedom, 1))
        p = np.where(exact, np.where(self.difference == 0, 1.0, 0.0), p)
        return np.where(known, p, 1.0)


@dataclass(frozen=True)
class _Own:
    """What each pair says of itself; arrays are (data sets, pairs)."""

    plain: Array  # the difference as it was measured
    mean: Array  # and without the drift
    variance: Array  # of one round's difference
    freedom: Array  # 0: no interval
    share: Array  # error² = variance · share
    rounds: Array


def fit_live(blocks: Array, first: Indices, second: Indices) -> PairFits:
    """The difference of each pair in live rounds, from blocks as (sets, arms, rounds, passes).

    A round's difference is the middle of the pair's log ratios over its passes (`middle_mean`).
    The rounds are the sample: processes that are started anew differ from the last ones by more
    than blocks say, so mean and variance are those of the rounds' differences. The variance borrows
    strength from the other pairs (`_borrowed`).
    """

    def own(one: Indices, other: Indices) -> _Own:
        pairs = zip(one.tolist(), other.tolist(), strict=True)
        d = np.stack([middle_mean(blocks[:, i] - blocks[:, j]) for i, j in pairs], axis=1)
        m = (~np.isnan(d)).sum(-1).astype(float)
        mean = _mean(d, -1)
        left = m - 1
        known = m >= LEAST_ROUNDS
        variance = np.nansum((d - mean) ** 2, -1) / np.where(known, left, 1.0)
        freedom = np.where(known, left, 0.0)
        plain = mean[..., 0]
        return _Own(plain, plain, variance, freedom, 1 / np.maximum(m, 1), m)

    arms = (~np.isnan(blocks)).any((2, 3)).sum(1)
    everyone = own(*np.triu_indices(blocks.shape[1], 1))
    return _borrowed(own(first, second), everyone, arms)


def fit_fresh(logs: Array, positions: Array, first: Indices, second: Indices) -> PairFits:
    """The difference of each pair in fresh rounds, whose arms run one after the other.

    The model is log y = arm + round + drift · position + noise. The drift is common to all arms
    (least squares). A pair's own differences without the drift are
    d = (y₁ − y₂) − drift · (t₁ − t₂), over its m rounds. Their mean is the difference. With h the
    share of the drift's information that lies in them, h = Σ(Δt − mean Δt)² ÷ 2S,

        s² = Σ(d − mean d)² ÷ (m − 1 − h),   error² = s² · (1/m + (mean Δt)² ÷ 2S),
        freedom = (m − 1 − h)² ÷ (m − 2 + (1 − h)²)      (Satterthwaite 1946),

    where S is the Σ of the squared positions within arms and rounds; s² then borrows strength from
    the other pairs (`_borrowed`). What a round has in common cancels. If the error is not known,
    the drift is not known well enough either, and d = y₁ − y₂: else a slope from a few runs could
    give a difference outside of everything that was measured.
    """
    drift, information = _drift(logs, positions)
    steady = logs - drift[:, None, None] * positions
    drift_known = (information > 1e-6)[:, None]
    twice = 2 * np.where(drift_known, information[:, None], 1.0)
    arms = (~np.isnan(logs)).any(2).sum(1)
    least = np.where(arms <= 2, LEAST_ROUNDS_OF_TWO, LEAST_ROUNDS)[:, None]

    def own(one: Indices, other: Indices) -> _Own:
        d = steady[:, one] - steady[:, other]
        dt = np.where(np.isnan(d), np.nan, positions[:, one] - positions[:, other])
        m = (~np.isnan(d)).sum(-1).astype(float)
        mean, mean_dt = (_mean(values, -1)[..., 0] for values in (d, dt))
        h = np.minimum(np.nansum((dt - mean_dt[..., None]) ** 2, -1) / twice, 1.0)
        known = (m >= least) & drift_known
        left = np.where(known, m - 1 - h, 1.0)
        return _Own(
            plain=_mean(logs[:, one] - logs[:, other], -1)[..., 0],
            mean=mean,
            variance=np.nansum((d - mean[..., None]) ** 2, -1) / left,
            freedom=np.where(known, left**2 / np.maximum(m - 2 + (1 - h) ** 2, 1e-9), 0.0),
            share=1 / np.maximum(m, 1) + mean_dt**2 / twice,
            rounds=m,
        )

    everyone = own(*np.triu_indices(logs.shape[1], 1))
    return _borrowed(own(first, second), everyone, arms)


def middle_mean(values: Array) -> Array:
    """Mean of the middle half along the last axis; NaN: fewer than LEAST_PASSES values.

    A quarter of the values is left out at each end, and one at least: a block that something else
    stopped, or one that had the machine for itself, does not count.
    """
    ordered = np.sort(values, axis=-1)  # NaN comes last
    m = (~np.isnan(values)).sum(-1, keepdims=True)
    cut = np.maximum(m // 4, 1)
    place = np.arange(values.shape[-1])
    kept = (place >= cut) & (place < m - cut)
    total = np.where(kept, ordered, 0.0).sum(-1)
    mean: Array = total / np.maximum(kept.sum(-1), 1)
    return np.where(m[..., 0] >= LEAST_PASSES, mean, np.nan)


def _borrowed(own: _Own, everyone: _Own, arms: NDArray[np.int_]) -> PairFits:
    """The fits, with variances moderated as docs/decisions/0005-verdicts.md says."""
    typical = _typical_variance(everyone)[:, None]
    known = own.freedom > 0
    lent = np.where(arms > 2, np.minimum(MOST_BORROWED, arms / 2), 0.0)[:, None]
    most = np.minimum(lent, own.freedom)
    variance = np.where(known, own.variance, 1.0)
    near = np.minimum(1.0, typical / np.maximum(variance, 1e-300))
    borrowed = np.where(np.isnan(typical), 0.0, most * near)
    freedom = np.where(known, own.freedom + borrowed, 0.0)
    total = own.freedom * variance + borrowed * np.nan_to_num(typical)
    moderated = total / np.where(known, freedom, 1.0)
    difference = _without_rounding(np.where(known, own.mean, own.plain))
    return PairFits(
        difference=np.where(own.rounds > 0, difference, np.nan),
        error=np.where(known, _without_rounding(np.sqrt(moderated * own.share)), np.nan),
        freedom=freedom,
        rounds=own.rounds,
    )


def _typical_variance(everyone: _Own) -> Array:
    """The TYPICAL quantile of the pairs' variances, without its bias: (data sets); NaN: none."""
    known = everyone.freedom > 0
    freedoms, where = np.unique(np.where(known, everyone.freedom, 1.0), return_inverse=True)
    bias = (stats.chi2.ppf(TYPICAL, freedoms) / freedoms)[where].reshape(known.shape)
    variances = np.where(known, everyone.variance / bias, np.nan)
    typical = np.full(len(known), np.nan)
    some = known.any(1)
    typical[some] = np.nanquantile(variances[some], TYPICAL, axis=1)
    return typical


def holm(p_values: Array) -> Array:
    """P-values adjusted for several tests at once (Holm 1979).

    The i-th smallest of k is multiplied by (k − i + 1), and is not less than the one before it.
    """
    count = p_values.shape[-1]
    order = np.argsort(p_values, axis=-1)
    stepped = np.take_along_axis(p_values, order, -1) * np.arange(count, 0, -1)
    stepped = np.minimum(np.maximum.accumulate(stepped, axis=-1), 1.0)
    adjusted = np.empty_like(stepped)
    np.put_along_axis(adjusted, order, stepped, -1)
    return adjusted


def _drift(logs: Array, positions: Array) -> tuple[Array, Array]:
    """Slope by least squares beside arms and rounds, and the Σ of squares that it comes from."""
    there = np.where(np.isnan(logs), np.nan, positions)
    y, t = _within(logs), _within(there)
    information = np.nansum(t * t, (1, 2))
    slope = np.nansum(t * y, (1, 2)) / np.where(information > 1e-6, information, np.inf)
    return slope, information


def _within(values: Array) -> Array:
    """The rest in values = arm + round + rest, by least squares; any runs may be missing."""
    there = (~np.isnan(values)).astype(float)
    weights = there / np.maximum(there.sum(1, keepdims=True), 1)
    shared = there @ weights.swapaxes(1, 2)
    # Arms are L⁺ · Σ over rounds of (value − mean of its round), L = diag(Σ W) − W·Wᵀ/n.
    laplacian = there.sum(2)[..., None] * np.eye(values.shape[1]) - shared
    from_rounds = np.nansum(values - _mean(values, 1), 2, keepdims=True)
    # Arms that no chain of common rounds connects have an eigenvalue of 0: any level fits.
    arms = np.linalg.pinv(laplacian, rcond=DISTINCT, hermitian=True) @ from_rounds
    rest: Array = values - arms
    return rest - _mean(rest, 1)


def _mean(values: Array, axis: int) -> Array:
    """Mean of the values that are not missing; 0 if all are."""
    count = (~np.isnan(values)).sum(axis, keepdims=True)
    total: Array = np.nansum(values, axis, keepdims=True)
    mean: Array = total / np.maximum(count, 1)
    return mean


def _without_rounding(values: Array) -> Array:
    """The same with 0 for what is only a rounding error of equal logarithms."""
    return np.where(np.abs(values) < 1e-12, 0.0, values)
