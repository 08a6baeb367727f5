"""Faster, slower or cannot tell: pairs of arms, judged by the rounds in which both ran.

The second half is the arithmetic. It takes many data sets at once, because the simulations that
test the verdicts use it too. Its arrays are (data sets, arms, rounds); a missing run is NaN. The
method was chosen by simulation: docs/decisions/0005-verdicts.md.
"""

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from ringside.stats.figure import CONFIDENCE, LEAST_ROUNDS, Figure, Interval, exponential, too_few
from ringside_core.specs import RefusalError

Word = Literal["faster", "slower", "cannot tell"]
Array = NDArray[np.float64]

POWER = 0.80
LEAST_ROUNDS_OF_TWO = 4  # if there are only two arms: the drift takes one degree of freedom
DISTINCT = 1e-9  # of the largest eigenvalue: a smaller eigenvalue is 0 with rounding errors


@dataclass(frozen=True)
class PairFits:
    """Pairs of arms in many data sets; arrays are (data sets, pairs).

    Attributes:
        difference: mean of log(first) − log(second). The drift is removed if there is an interval,
            else not; NaN: no common round.
        error: its standard error; NaN if freedom is 0.
        freedom: degrees of freedom; 0: too few rounds, or drift and difference cannot be separated.
        rounds: in which both ran.
        drift_known: whether the arms' places in their rounds differ (data sets).
    """

    difference: Array
    error: Array
    freedom: Array
    rounds: Array
    drift_known: NDArray[np.bool_]

    def half_widths(self, confidence: float) -> Array:
        """Half the width of the interval of `difference`; infinite if there is none."""
        known = self.freedom > 0
        quantile = stats.t.ppf((1 + confidence) / 2, np.where(known, self.freedom, 1))
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
class Sample:
    """The throughput of one run.

    Attributes:
        round: in which it ran.
        position: 0-based place in the order in which the runs were started.
        value: examples/s.
    """

    round: int
    position: int
    value: float


@dataclass(frozen=True)
class PairVerdict:
    """Two arms, and whether the first is faster than the second.

    Attributes:
        ratio: throughput of the first ÷ throughput of the second, with its own 95 % interval.
        word: follows from p_adjusted, so that all words of a comparison together are right with a
            probability of 95 %.
        p_value: of this pair alone; None if there is no interval.
        p_adjusted: by Holm's method over all pairs judged together.
        smallest_visible: the smallest relative difference that would have got a word with a
            probability of 80 %, such as 0.03; None if there is no interval.
        reason: why one cannot tell, or why there is no interval.
    """

    first: str
    second: str
    ratio: Figure
    word: Word
    p_value: float | None
    p_adjusted: float | None
    smallest_visible: float | None
    reason: str = ""


def turned(verdict: PairVerdict) -> PairVerdict:
    """The same verdict with first and second exchanged."""
    ratio, word = verdict.ratio, verdict.word
    interval = ratio.interval and Interval(1 / ratio.interval.high, 1 / ratio.interval.low)
    opposite: dict[Word, Word] = {"faster": "slower", "slower": "faster"}
    return replace(
        verdict,
        first=verdict.second,
        second=verdict.first,
        ratio=replace(ratio, value=ratio.value and 1 / ratio.value, interval=interval),
        word=opposite.get(word, word),
    )


def checked(arm: str, sample: Sample) -> Sample:
    """The sample itself, if its throughput is valid.

    Raises:
        RefusalError: its throughput is zero, negative or not finite.
    """
    if not (math.isfinite(sample.value) and sample.value > 0):
        raise RefusalError(
            "A throughput must be a finite number above 0.",
            received=f"throughput_examples_s={sample.value} of {arm!r} in round {sample.round + 1}",
        )
    return sample


def pair_verdicts(
    samples: Mapping[str, Sequence[Sample]], pairs: Sequence[tuple[str, str]] | None = None
) -> tuple[PairVerdict, ...]:
    """A verdict for each pair, judged together; the faster one by ratio comes first.

    Args:
        samples: of every arm that ran, because all of them show the drift of the machine.
        pairs: to judge; None: all.

    Raises:
        RefusalError: a throughput is not valid, or an arm has two in one round.
    """
    labels = tuple(samples)
    wanted = list(itertools.combinations(labels, 2)) if pairs is None else list(pairs)
    if not wanted:
        return ()
    logs, positions = _as_arrays(samples)
    first, second = (np.array([labels.index(pair[k]) for pair in wanted]) for k in (0, 1))
    fits = fit_pairs(logs, positions, first, second)
    known = fits.freedom[0] > 0
    p_values = fits.p_values()[0]
    adjusted = np.ones_like(p_values)
    adjusted[known] = holm(p_values[known])
    family = int(known.sum())
    verdicts = []
    for k, (one, other) in enumerate(wanted):
        ratio = _ratio(fits, k, arms=int((~np.isnan(logs[0]).all(1)).sum()))
        verdict = PairVerdict(one, other, ratio, "cannot tell", None, None, None, ratio.reason)
        if known[k]:
            verdict = replace(
                verdict,
                p_value=float(p_values[k]),
                p_adjusted=float(adjusted[k]),
                smallest_visible=_smallest_visible(fits, k, family),
            )
            verdict = _with_word(verdict, family)
        verdicts.append(turned(verdict) if (ratio.value or 1.0) < 1 else verdict)
    return tuple(verdicts)


@functools.lru_cache(maxsize=4096)
def visible_effect(freedom: float, level: float) -> float:
    """The difference, in standard errors, that a t-test at `level` finds with probability POWER.

    It is the noncentrality at which the noncentral t exceeds the two-sided critical value with that
    probability. The other tail is left out: a word in the wrong direction does not count.
    """
    critical = float(stats.t.isf(level / 2, freedom))

    def missing_power(effect: float) -> float:
        return float(stats.nct.sf(critical, freedom, effect)) - POWER

    # A noncentral t is effect / √(χ²/freedom) + noise: this bound is always large enough.
    high = (critical + 3) * 3
    return float(optimize.brentq(missing_power, 0.0, high, xtol=1e-6))


def _as_arrays(samples: Mapping[str, Sequence[Sample]]) -> tuple[Array, Array]:
    """Logarithms and positions as (1, arms, rounds); NaN and 0 if there was no run."""
    numbers = sorted({one.round for of_arm in samples.values() for one in of_arm})
    logs = np.full((1, len(samples), len(numbers)), np.nan)
    positions = np.zeros_like(logs)
    for row, (label, of_arm) in enumerate(samples.items()):
        for one in of_arm:
            column = numbers.index(one.round)
            if not np.isnan(logs[0, row, column]):
                raise RefusalError(
                    "An arm must have one throughput in a round.",
                    received=f"two of {label!r} in round {one.round + 1}",
                )
            logs[0, row, column] = math.log(checked(label, one).value)
            positions[0, row, column] = one.position
    return logs, positions


def _ratio(fits: PairFits, pair: int, arms: int) -> Figure:
    """The ratio of throughputs of a pair, or why it has no interval; of the first data set."""
    rounds = int(fits.rounds[0, pair])
    if rounds == 0:
        return Figure(None, "no round in which both completed")
    difference = float(fits.difference[0, pair])
    half = float(fits.half_widths(CONFIDENCE)[0, pair])
    if math.isfinite(half):
        interval = Interval(difference - half, difference + half)
        return exponential(Figure(difference, interval=interval, n=rounds))
    least = LEAST_ROUNDS_OF_TWO if arms <= 2 else LEAST_ROUNDS
    why_not = too_few(rounds, least) or "both always ran in the same order: drift is not told apart"
    return exponential(Figure(difference, why_not, n=rounds))


def _smallest_visible(fits: PairFits, pair: int, family: int) -> float:
    """A share: exp(effect · standard error) − 1, at the level of Holm's strictest step."""
    freedom = round(float(fits.freedom[0, pair]), 3)
    effect = visible_effect(freedom, (1 - CONFIDENCE) / family)
    return math.expm1(min(effect * float(fits.error[0, pair]), 700.0))


def _with_word(verdict: PairVerdict, family: int) -> PairVerdict:
    """The verdict with its word, by the adjusted p-value, and the reason if it cannot tell."""
    level = 1 - CONFIDENCE
    if verdict.p_value is None or verdict.p_adjusted is None or verdict.ratio.value is None:
        return verdict
    if verdict.p_adjusted <= level:
        return replace(verdict, word="faster" if verdict.ratio.value > 1 else "slower")
    if verdict.p_value <= level:
        reason = f"alone it would be called; as one of {family} pairs it can be chance"
    else:
        reason = "equal throughput is within the interval"
    return replace(verdict, reason=reason)


# The arithmetic


def fit_pairs(
    logs: Array, positions: Array, first: NDArray[np.int_], second: NDArray[np.int_]
) -> PairFits:
    """The difference of each pair, by the model log y = arm + round + drift · position + noise.

    The drift is common to all arms (least squares). A pair's own differences without the drift are
    d = (y₁ − y₂) − drift · (t₁ − t₂), over its m rounds. Their mean is the difference. With h the
    share of the drift's information that lies in them, h = Σ(Δt − mean Δt)² ÷ 2S,

        s² = Σ(d − mean d)² ÷ (m − 1 − h),   error² = s² · (1/m + (mean Δt)² ÷ 2S),
        freedom = (m − 1 − h)² ÷ (m − 2 + (1 − h)²)      (Satterthwaite 1946),

    where S is the Σ of the squared positions within arms and rounds. Each arm may have its own
    noise, and what a round has in common cancels. If the error is not known, the drift is not known
    well enough either, and d = y₁ − y₂: else a slope from a few runs could give a difference
    outside of everything that was measured.
    """
    drift, information = _drift(logs, positions)
    steady = logs - drift[:, None, None] * positions
    d = steady[:, first] - steady[:, second]
    dt = np.where(np.isnan(d), np.nan, positions[:, first] - positions[:, second])
    m = (~np.isnan(d)).sum(-1).astype(float)
    mean, mean_dt = (_mean(one, -1)[..., 0] for one in (d, dt))
    drift_known = information > 1e-6
    twice = 2 * np.where(drift_known, information, 1.0)[:, None]
    h = np.minimum(np.nansum((dt - mean_dt[..., None]) ** 2, -1) / twice, 1.0)
    left = m - 1 - h
    alone = (~np.isnan(logs)).any(2).sum(1) <= 2  # no other arm shows the drift
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
    """Rounds that an interval needs: one number for two arms alone, another for more arms."""
    return np.where(alone, LEAST_ROUNDS_OF_TWO, LEAST_ROUNDS)


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
    """The rest in values = arm + round + rest, by least squares; any runs may be missing.

    With W = 1 for each run, n its sums over arms, and L = diag(Σ over rounds of W) − W·Wᵀ/n, the
    arms are L⁺ · Σ over rounds of (value − mean of its round), and the rounds are the means of the
    values without the arms.
    """
    there = (~np.isnan(values)).astype(float)
    weights = there / np.maximum(there.sum(1, keepdims=True), 1)
    shared = there @ weights.swapaxes(1, 2)
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
