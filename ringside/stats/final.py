"""How much arms differ, from the launches of the final: randomised complete blocks.

A launch is a block: every arm of the final is started in it, and a new process may be faster or
slower than the last one. Within it the arms train in turns, pass by pass, so that a pair's ratio in
a pass is free of what the machine does meanwhile. docs/decisions/0005-verdicts.md has the rule.

Arrays are (data sets, arms, launches, passes), because the simulations that test it use it too;
what is missing is NaN. They hold logarithms of throughputs.
"""

import itertools
import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ringside.stats.figure import CONFIDENCE, LEAST_LAUNCHES, Figure, Interval, exponential, too_few
from ringside_core.specs import RefusalError

Array = NDArray[np.float64]
Indices = NDArray[np.int_]
Word = Literal["faster", "slower", "cannot tell", ""]
Name = TypeVar("Name", bound=Hashable)

CHANCE = 1 - CONFIDENCE
LEAST_PASSES = 4  # of fewer the middle half is a single one, and has no error
EXACT = 1e-12  # of logarithms: a smaller difference is a rounding error


@dataclass(frozen=True)
class Sample:
    """The throughput of one run, examples/s.

    Attributes:
        blocks: of a live run: that of each block that counts, by its pass, from 0.
    """

    value: float
    blocks: Mapping[int, float] = field(default_factory=dict)


Samples = Mapping[str, Mapping[int, Sample]]  # by label of the arm and number of the launch


@dataclass(frozen=True)
class Pair:
    """Two arms, and how many times as fast the first is as the second.

    Attributes:
        ratio: of throughputs, with the 95 % interval of this pair alone, or why there is none.
        p_value: of this pair alone; None: there is no interval.
        word: of the first arm, where a question was asked; empty: none was.
    """

    first: str
    second: str
    ratio: Figure
    p_value: float | None = None
    word: Word = ""

    @property
    def names(self) -> frozenset[str]:
        """Both, in no order."""
        return frozenset((self.first, self.second))


def turned(pair: Pair) -> Pair:
    """The same pair with first and second exchanged."""
    ratio = pair.ratio
    interval = ratio.interval and Interval(1 / ratio.interval.high, 1 / ratio.interval.low)
    opposite: dict[Word, Word] = {"faster": "slower", "slower": "faster"}
    return replace(
        pair,
        first=pair.second,
        second=pair.first,
        ratio=replace(ratio, value=ratio.value and 1 / ratio.value, interval=interval),
        word=opposite.get(pair.word, pair.word),
    )


@dataclass(frozen=True)
class Fits:
    """Pairs of arms in many data sets; arrays are (data sets, pairs), of logarithms.

    Attributes:
        error: standard error of `difference`.
        inflation: how many times as much launches scatter as their blocks alone would, [data sets].
        launches: that count, [data sets].
        freedom: degrees of freedom of the errors, [data sets]; 0: too few launches.
    """

    difference: Array
    error: Array
    inflation: Array
    launches: Array
    freedom: Array

    def half_widths(self) -> Array:
        """The 95 % interval is `difference` ± this; infinite where there is none."""
        known = (self.freedom > 0)[:, None]
        quantile = stats.t.isf(CHANCE / 2, np.maximum(self.freedom, 1))[:, None]
        return np.where(known, quantile * self.error, np.inf)

    def p_values(self) -> Array:
        """Two-sided p-value of no difference; 1 where there is no interval."""
        known = (self.freedom > 0)[:, None]
        ratio = np.abs(self.difference) / np.maximum(self.error, 1e-300)
        p = 2 * stats.t.sf(ratio, np.maximum(self.freedom, 1)[:, None])
        return np.where(known, p, 1.0)


def fit(blocks: Array, first: Indices, second: Indices) -> Fits:
    """The difference of each pair, (data sets, arms, launches, passes) → (data sets, pairs).

    A pair's difference in a launch is the middle of its log ratios over the passes (`middle`); the
    launches are the sample. Launches in which a pair has none do not count. With d the differences
    of a pair, s² their variance over the r launches, and b² what its blocks alone would scatter a
    launch by (the mean of `middle`'s squared errors):

        inflation = mean of s² ÷ b² over all pairs of arms     (Birge 1932)
        error² = max(s², inflation · b²) ÷ r,  with (a − 1)(r − 1) degrees of freedom.

    So a pair of noisy arms has a wide interval, as its many blocks say; how much launches scatter
    beyond that is one factor, which all arms share. A pair whose own launches scatter more than
    that keeps its own variance. With a = 2 it is the paired t-test.

    Example:
        >>> fit(np.log([[[[100, 101, 99]] * 3, [[50, 51, 49]] * 3]]), [0], [1]).difference.round(2)
        array([[0.69]])
    """
    arms = blocks.shape[1]
    every = np.triu_indices(arms, 1)
    d, b2 = middle(blocks[:, every[0]] - blocks[:, every[1]])
    counts = ~np.isnan(d).any(1, keepdims=True)
    d, b2 = np.where(counts, d, np.nan), np.where(counts, b2, np.nan)
    launches = counts[:, 0].sum(-1).astype(float)
    r = np.maximum(launches, 1)[:, None]
    mean = np.nansum(d, -1) / r
    rest = np.where(counts, d - mean[..., None], 0.0)
    s2 = (rest**2).sum(-1) / np.maximum(r - 1, 1)
    b2 = np.nansum(b2, -1) / r
    b2 = np.maximum(b2, EXACT**2)
    inflation = (s2 / b2).mean(1, keepdims=True)
    error = np.sqrt(np.maximum(s2, inflation * b2) / r)
    number = np.zeros((arms, arms), int)
    number[every] = np.arange(len(every[0]))
    sign = np.where(np.asarray(first) < np.asarray(second), 1.0, -1.0)
    chosen = number[np.minimum(first, second), np.maximum(first, second)]
    return Fits(
        difference=np.where(launches[:, None] > 0, sign * mean[:, chosen], np.nan),
        error=error[:, chosen],
        inflation=np.sqrt(inflation[:, 0]),
        launches=launches,
        freedom=np.where(launches >= LEAST_LAUNCHES, (arms - 1) * (launches - 1), 0.0),
    )


def middle(values: Array) -> tuple[Array, Array]:
    """Mean of the middle half along the last axis, and its squared standard error.

    A quarter of the values is left out at each end, and one at least: a block that something else
    stopped, or one that had the machine for itself, does not count. The error is that of a trimmed
    mean: the variance of the n values, those left out replaced by the nearest that are kept,
    × (n − 1) ÷ (h · (h − 1)), with h values kept (Tukey and McLaughlin 1963).

    Returns:
        Arrays without the last axis. NaN: fewer than LEAST_PASSES values. A single pass, of runs
        that are not live, is its own middle, with an error of 1: all pairs are as noisy.
    """
    if values.shape[-1] == 1:
        return values[..., 0], np.ones(values.shape[:-1])
    ordered = np.sort(values, axis=-1)  # NaN comes last
    n = (~np.isnan(values)).sum(-1, keepdims=True)
    cut = np.maximum(n // 4, 1)
    place = np.arange(values.shape[-1])
    kept = (place >= cut) & (place < n - cut)
    h = np.maximum(kept.sum(-1), 1)
    none = ~kept.any(-1, keepdims=True)
    low = np.where(none, 0.0, np.where(kept, ordered, np.inf).min(-1, keepdims=True))
    high = np.where(none, 0.0, np.where(kept, ordered, -np.inf).max(-1, keepdims=True))
    pulled = np.where(np.isnan(values), np.nan, np.clip(values, low, high))
    count = np.maximum(n[..., 0], 1)
    center = np.nansum(pulled, -1) / count
    squares = np.nansum((pulled - center[..., None]) ** 2, -1)
    known = n[..., 0] >= LEAST_PASSES
    mean = np.where(kept, ordered, 0.0).sum(-1) / h
    error2 = squares / (h * np.maximum(h - 1, 1))
    return np.where(known, mean, np.nan), np.where(known, error2, np.nan)


def final_pairs(samples: Samples, launches: Sequence[int]) -> tuple[list[Pair], float | None]:
    """Every pair of these arms, from the launches that count; the faster one by ratio comes first.

    And the inflation of `fit`: about 1 if a new process changes nothing; None: not known.

    Args:
        samples: of the arms of the final, and of no others: they share their noise.
        launches: numbers of those in which all of them completed.

    Raises:
        RefusalError: a throughput is zero, negative or not finite.
    """
    labels = list(samples)
    pairs = list(itertools.combinations(range(len(labels)), 2))
    if not (pairs and launches):
        return [], None
    blocks = _blocks(samples, launches)
    least = min(LEAST_PASSES, blocks.shape[-1])
    known = ((~np.isnan(blocks[0])).sum(-1) >= least).sum(-1)
    able = [label for label, k in zip(labels, known, strict=True) if k >= LEAST_LAUNCHES]
    if 1 < len(able) < len(labels):  # an arm without blocks is no reason to judge no other
        found, factor = final_pairs({label: samples[label] for label in able}, launches)
        why = f"not {LEAST_LAUNCHES} launches in which both have {LEAST_PASSES} blocks"
        unable = [(labels[a], labels[b]) for a, b in pairs if {labels[a], labels[b]} - {*able}]
        return [*found, *(Pair(*names, Figure(None, why)) for names in unable)], factor
    fits = fit(blocks, *map(np.array, zip(*pairs, strict=True)))
    count = int(fits.launches[0])
    why_not = too_few(count)
    if not why_not and not fits.error.any():
        why_not = "no scatter: the samples are all equal"
    halves, p_values = fits.half_widths()[0], fits.p_values()[0]
    found = []
    for k, (one, other) in enumerate(pairs):
        difference = float(fits.difference[0, k])
        if math.isnan(difference):
            ratio = Figure(None, f"no launch in which all arms have {LEAST_PASSES} blocks")
        elif why_not:
            ratio = exponential(Figure(difference, why_not, n=count))
        else:
            within = Interval(difference - float(halves[k]), difference + float(halves[k]))
            ratio = exponential(Figure(difference, interval=within, n=count))
        p_value = float(p_values[k]) if ratio.interval else None
        pair = Pair(labels[one], labels[other], ratio, p_value)
        found.append(turned(pair) if (ratio.value or 1.0) < 1 else pair)
    live = blocks.shape[-1] > 1 and not why_not
    return found, float(fits.inflation[0]) if live else None


def _blocks(samples: Samples, launches: Sequence[int]) -> Array:
    """(1, arms, launches, passes); of runs that were not live one pass."""
    live = any(one.blocks for of_arm in samples.values() for one in of_arm.values())
    most = max((k for s in samples.values() for one in s.values() for k in one.blocks), default=0)
    found = np.full((1, len(samples), len(launches), most + 1), np.nan)
    for arm, (label, of_arm) in enumerate(samples.items()):
        for place, number in enumerate(launches):
            if number in of_arm:
                one = checked(label, number, of_arm[number])
                for k, value in one.blocks.items() if live else [(0, one.value)]:
                    found[0, arm, place, k] = math.log(value)
    return found


def checked(label: str, launch: int, sample: Sample) -> Sample:
    """The sample itself, if its throughputs are valid.

    Raises:
        RefusalError: one is zero, negative or not finite.
    """
    for value in (sample.value, *sample.blocks.values()):
        if not (math.isfinite(value) and value > 0):
            raise RefusalError(
                "A throughput must be a finite number above 0.",
                received=f"throughput_examples_s={value} of {label!r} in launch {launch}",
            )
    return sample


# Words


def holm(p_values: Array) -> Array:
    """P-values adjusted for several tests at once (Holm 1979, Scand. J. Statist. 6:65-70).

    The i-th smallest of k is multiplied by (k − i + 1), and is not less than the one before it.

    Example:
        >>> holm(np.array([0.03, 0.01, 0.02]))
        array([0.04, 0.03, 0.04])
    """
    count = p_values.shape[-1]
    order = np.argsort(p_values, axis=-1)
    stepped = np.take_along_axis(p_values, order, -1) * np.arange(count, 0, -1)
    stepped = np.minimum(np.maximum.accumulate(stepped, axis=-1), 1.0)
    adjusted = np.empty_like(stepped)
    np.put_along_axis(adjusted, order, stepped, -1)
    return adjusted


def words(asked: Mapping[Name, tuple[Figure, float | None]]) -> dict[Name, Word]:
    """Whether each ratio is above or below 1, by Holm's method over all of them.

    Args:
        asked: ratio and p-value; a ratio without a p-value has no word.
    """
    known = {name: (ratio, p) for name, (ratio, p) in asked.items() if p is not None}
    adjusted = holm(np.array([p for _, p in known.values()], np.float64))
    found: dict[Name, Word] = {}
    for (name, (ratio, _)), p in zip(known.items(), adjusted.tolist(), strict=True):
        ahead: Word = "faster" if (ratio.value or 1.0) > 1 else "slower"
        found[name] = ahead if p <= CHANCE else "cannot tell"
    return found


def with_words(pairs: Sequence[Pair], serial: str, arms: Collection[str]) -> list[Pair]:
    """The pairs; those of an arm with serial have a word, if they have an interval.

    Args:
        pairs: of the final.
        serial: label of the arm without distribution; empty: there is none.
        arms: labels of those that are asked about.
    """
    asked = [one for one in pairs if serial in one.names and one.names - {serial} <= set(arms)]
    found = words({one.names: (one.ratio, one.p_value) for one in asked})
    return [replace(one, word=found.get(one.names, "")) for one in pairs]
