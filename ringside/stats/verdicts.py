"""Faster, slower or cannot tell: pairs of arms, judged by the rounds in which both ran.

The arithmetic is in ringside.stats.pairs; docs/decisions/0005-verdicts.md says how it was chosen.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from ringside.stats.figure import CONFIDENCE, LEAST_ROUNDS, Figure, Interval, exponential, too_few
from ringside.stats.pairs import (
    LEAST_PASSES,
    LEAST_ROUNDS_OF_TWO,
    PairFits,
    fit_fresh,
    fit_live,
    holm,
)
from ringside_core.specs import RefusalError
from ringside_core.text import percent

Word = Literal["faster", "slower", "cannot tell"]
Array = NDArray[np.float64]

CHANCE = 1 - CONFIDENCE
POWER = 0.80
SURE_NOISE = 0.80  # the noise is less than its upper bound in so many experiments


@dataclass(frozen=True)
class Sample:
    """The throughput of one run.

    Attributes:
        blocks: of a live run: examples/s of each block that counts, by its pass, from 0.
    """

    round: int  # in which it ran; the launch of a live run
    position: int  # 0-based place in the order in which the runs were started
    value: float  # examples/s
    blocks: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Question:
    """Whether one arm is faster than another.

    Attributes:
        of_first, of_second: from how many arms that are not told apart each was chosen as the
            fastest, by the same numbers that judge it; 1: it was not.
    """

    first: str
    second: str
    of_first: int = 1
    of_second: int = 1


@dataclass(frozen=True)
class PairVerdict:
    """Two arms, and whether the first is faster than the second.

    Attributes:
        word: follows from p_adjusted. The words of one family of questions are right together with
            a probability of 1 − level.
        smallest_visible: a relative difference, such as 0.03, that would have got a word with a
            probability of 80 %, even if the noise is as large as it may be; infinite: none of up to
            100 % would. None if there is no interval.
        chosen_of: of how many arms the first and the second were chosen as the fastest; the
            interval accounts for it.
    """

    first: str
    second: str
    ratio: Figure  # throughput of the first ÷ throughput of the second, with its own 95 % interval
    word: Word = "cannot tell"
    p_value: float | None = None  # of this pair alone; None if there is no interval
    p_adjusted: float | None = None  # by Holm's method over its family
    smallest_visible: float | None = None
    reason: str = ""  # why one cannot tell, or why there is no interval
    chosen_of: tuple[int, int] = (1, 1)


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
        chosen_of=(verdict.chosen_of[1], verdict.chosen_of[0]),
    )


def checked(arm: str, sample: Sample) -> Sample:
    """The sample itself, if its throughputs are valid.

    Raises:
        RefusalError: one is zero, negative or not finite.
    """
    for value in (sample.value, *sample.blocks.values()):
        if not (math.isfinite(value) and value > 0):
            raise RefusalError(
                "A throughput must be a finite number above 0.",
                received=f"throughput_examples_s={value} of {arm!r} in round {sample.round + 1}",
            )
    return sample


def pair_verdicts(
    samples: Mapping[str, Sequence[Sample]],
    family: Sequence[Question],
    *,
    level: float = CHANCE,
) -> tuple[PairVerdict, ...]:
    """A verdict for each question, judged together; the faster one by ratio comes first.

    Args:
        samples: of every arm that ran: all of them show the drift of the machine and its noise.
        family: of questions, which share one probability of a false word.
        level: that probability.

    Raises:
        RefusalError: a throughput is not valid, or an arm has two in one round.
    """
    if not family:
        return ()
    fits, live = _fits(samples, family), _live(samples)
    of_two = not live and sum(map(bool, samples.values())) <= 2
    known = fits.freedom[0] > 0
    alone = _p_values(fits, family)
    adjusted = np.ones_like(alone)
    adjusted[known] = holm(alone[known])
    count = int(known.sum())
    verdicts = []
    for k, one in enumerate(family):
        least = LEAST_ROUNDS_OF_TWO if of_two else LEAST_ROUNDS
        ratio = _ratio(fits, k, one, least, live=live)
        chosen_of = (one.of_first, one.of_second)
        found = PairVerdict(one.first, one.second, ratio, reason=ratio.reason, chosen_of=chosen_of)
        if known[k]:
            word, reason = _word(float(alone[k]), float(adjusted[k]), ratio, count, level)
            found = replace(
                found,
                word=word,
                p_value=float(alone[k]),
                p_adjusted=float(adjusted[k]),
                smallest_visible=_smallest_visible(fits, k, level / count / max(chosen_of)),
                reason=reason,
            )
        verdicts.append(turned(found) if (ratio.value or 1.0) < 1 else found)
    return tuple(verdicts)


def told_apart(
    samples: Mapping[str, Sequence[Sample]], pairs: Sequence[Question]
) -> set[frozenset[str]]:
    """The pairs whose own 95 % interval excludes 1, each judged alone."""
    if not pairs:
        return set()
    alone = _p_values(_fits(samples, pairs), pairs) <= CHANCE
    return {
        frozenset((one.first, one.second)) for one, told in zip(pairs, alone, strict=True) if told
    }


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


def most_noise(freedom: float) -> float:
    """How many times the estimated standard error the true one may be: √(f ÷ χ²(20 %, f)).

    In SURE_NOISE of the experiments it is less.
    """
    return math.sqrt(freedom / float(stats.chi2.ppf(1 - SURE_NOISE, freedom)))


def _live(samples: Mapping[str, Sequence[Sample]]) -> bool:
    return any(one.blocks for of_arm in samples.values() for one in of_arm)


def _fits(samples: Mapping[str, Sequence[Sample]], family: Sequence[Question]) -> PairFits:
    """One data set: live rounds by their blocks, fresh rounds by their runs."""
    labels = {label: row for row, label in enumerate(samples)}
    numbers = sorted({one.round for of_arm in samples.values() for one in of_arm})
    passes = 1 + max((k for s in samples.values() for one in s for k in one.blocks), default=0)
    logs = np.full((1, len(labels), len(numbers)), np.nan)
    positions = np.zeros_like(logs)
    blocks = np.full((*logs.shape, passes), np.nan)
    for label, of_arm in samples.items():
        for one in of_arm:
            place = (0, labels[label], numbers.index(one.round))
            if not np.isnan(logs[place]):
                raise RefusalError(
                    "An arm must have one throughput in a round.",
                    received=f"two of {label!r} in round {one.round + 1}",
                )
            logs[place] = math.log(checked(label, one).value)
            positions[place] = one.position
            for number, value in one.blocks.items():
                blocks[place][number] = math.log(value)
    first = np.array([labels[one.first] for one in family])
    second = np.array([labels[one.second] for one in family])
    if _live(samples):
        return fit_live(blocks, first, second)
    return fit_fresh(logs, positions, first, second)


def _p_values(fits: PairFits, family: Sequence[Question]) -> Array:
    """P-value of each question, the choice of its arms taken into account (first data set)."""
    ahead = fits.difference[0] > 0
    chosen = np.where(ahead, [one.of_first for one in family], [one.of_second for one in family])
    adjusted: Array = np.minimum(fits.p_values()[0] * chosen, 1.0)
    return adjusted


def _ratio(fits: PairFits, pair: int, question: Question, least: int, *, live: bool) -> Figure:
    """The ratio of throughputs of a pair, or why it has no interval; of the first data set."""
    rounds = int(fits.rounds[0, pair])
    if rounds == 0:
        shared = f"have {LEAST_PASSES} blocks in common" if live else "completed"
        return Figure(None, f"no round in which both {shared}")
    difference = float(fits.difference[0, pair])
    # The fastest of k arms was lucky in this experiment: by the union bound over the arms that
    # could have been chosen, its luck exceeds the quantile of α/2k with a probability of at most
    # α/2. Its opponent, if chosen too, was lucky as well, which moves the ratio to the other side.
    low, high = (
        float(fits.half_widths(np.array([CHANCE]) / of)[0, pair])
        for of in (question.of_first, question.of_second)
    )
    if math.isfinite(low):
        interval = Interval(difference - low, difference + high)
        return exponential(Figure(difference, interval=interval, n=rounds))
    why_not = too_few(rounds, least) or "both always ran in the same order: drift is not told apart"
    return exponential(Figure(difference, why_not, n=rounds))


def _smallest_visible(fits: PairFits, pair: int, level: float) -> float:
    """A share: exp(effect · upper bound of the standard error) − 1; infinite above 100 %."""
    freedom = round(float(fits.freedom[0, pair]), 3)
    error = float(fits.error[0, pair]) * most_noise(freedom)
    effect = visible_effect(freedom, level) * error
    return math.expm1(effect) if effect <= math.log(2) else math.inf


def _word(
    alone: float, adjusted: float, ratio: Figure, family: int, level: float
) -> tuple[Word, str]:
    """The word by the adjusted p-value, and the reason if one cannot tell."""
    if adjusted <= level:
        return ("faster" if (ratio.value or 0.0) > 1 else "slower"), ratio.reason
    if alone > CHANCE:
        return "cannot tell", "equal throughput is within the interval"
    if family > 1:
        told = f"alone it would be called; as one of {family} questions it can be chance"
    else:
        told = f"with one look it would be called; this look may spend {percent(level)} of chance"
    return "cannot tell", told
