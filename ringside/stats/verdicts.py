"""Faster, slower or cannot tell: pairs of arms from rounds in which both ran."""

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy import optimize, stats

from ringside.stats.intervals import CONFIDENCE, Estimate, Interval, exponential, too_few
from ringside.stats.paired import (
    LEAST_ROUNDS,
    LEAST_ROUNDS_OF_TWO,
    Array,
    PairFits,
    fit_pairs,
    holm,
)
from ringside_core.specs import RefusalError

Word = Literal["faster", "slower", "cannot tell"]
POWER = 0.80


@dataclass(frozen=True)
class Sample:
    """The throughput of one run.

    Attributes:
        round: in which it ran.
        position: 0-based place in the order in which all runs were started.
        value: examples/s.
    """

    round: int
    position: int
    value: float


@dataclass(frozen=True)
class PairVerdict:
    """Two arms, and whether the first is faster than the second.

    Attributes:
        ratio: throughput of the first ÷ that of the second, with its own 95 % interval.
        word: from p_adjusted, so that all words of a comparison together are right with 95 %.
        p_value: of this pair alone; None where there is no interval.
        p_adjusted: the same by Holm's method over all pairs judged together.
        smallest_visible: the smallest relative difference that would have been called with a
            probability of 80 %, such as 0.03; None where there is no interval.
        reason: why one cannot tell, or why there is no interval.
    """

    first: str
    second: str
    ratio: Estimate
    word: Word
    p_value: float | None
    p_adjusted: float | None
    smallest_visible: float | None
    reason: str = ""


def turned(verdict: PairVerdict) -> PairVerdict:
    """The same verdict with second and first changed round."""
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
    """The sample, if it is one.

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
        samples: of every arm that ran, as all of them show how the machine drifts.
        pairs: that are judged; None: all.

    Raises:
        RefusalError: a throughput is none, or an arm has two in one round.
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
    """The difference, in standard errors, that a t-test at `level` calls with probability POWER.

    The noncentrality for which the noncentral t exceeds the two-sided critical value so often; the
    other tail is left out, as a call in the wrong direction is none.
    """
    critical = float(stats.t.isf(level / 2, freedom))

    def missing_power(effect: float) -> float:
        return float(stats.nct.sf(critical, freedom, effect)) - POWER

    # A noncentral t is effect / √(χ²/freedom) + noise: this much is always enough.
    high = (critical + 3) * 3
    return float(optimize.brentq(missing_power, 0.0, high, xtol=1e-6))


def _as_arrays(samples: Mapping[str, Sequence[Sample]]) -> tuple[Array, Array]:
    """Logarithms and positions as (1, arms, rounds); NaN and 0 where there was no run."""
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


def _ratio(fits: PairFits, pair: int, arms: int) -> Estimate:
    """The ratio of throughputs of a pair in the first data set, or why it has no interval."""
    rounds = int(fits.rounds[0, pair])
    if rounds == 0:
        return Estimate(None, None, 0, "no round in which both completed")
    difference = float(fits.difference[0, pair])
    half = float(fits.half_widths(CONFIDENCE)[0, pair])
    if math.isfinite(half):
        interval = Interval(difference - half, difference + half)
        return exponential(Estimate(difference, interval, rounds))
    least = LEAST_ROUNDS_OF_TWO if arms <= 2 else LEAST_ROUNDS
    why_not = too_few(rounds, least) or "both always ran in the same order: drift is not told apart"
    return exponential(Estimate(difference, None, rounds, why_not))


def _smallest_visible(fits: PairFits, pair: int, family: int) -> float:
    """As a share: exp(effect · standard error) − 1, at the level of Holm's hardest step."""
    freedom = round(float(fits.freedom[0, pair]), 3)
    effect = visible_effect(freedom, (1 - CONFIDENCE) / family)
    return math.expm1(min(effect * float(fits.error[0, pair]), 700.0))


def _with_word(verdict: PairVerdict, family: int) -> PairVerdict:
    """The word by the adjusted p-value, and why it is not another."""
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
