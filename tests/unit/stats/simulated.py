"""Made-up data sets, live and fresh; the tables: `python -m tests.unit.stats.simulated`.

All arms are equally fast, so every call is a false alarm. Arrays are (data sets, arms, rounds) for
fresh rounds, and (data sets, arms, rounds, passes) for live ones.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ringside.stats.pairs import PairFits, fit_fresh, fit_live, holm

LAUNCH = 0.0155  # of log throughput, between launches of one arm: 2.2 % for the ratio of a pair
BLOCK = 0.02  # between blocks of one launch
PASSES = 8
LIVE_CELLS = ((2, 4), (4, 3), (4, 6), (8, 3), (8, 5), (15, 3), (15, 4), (15, 8))  # arms, launches
NOISE = 0.08  # of log throughput: what runs of seconds show on a shared machine of two cores
SETS = 2000
ARMS = (2, 3, 4, 16)
ROUNDS = (3, 5, 8, 12)
Random = np.random.Generator
Kind = Callable[[Random, np.ndarray], np.ndarray]
Estimator = Callable[..., PairFits]

LiveKind = Callable[[Random, tuple[int, ...]], np.ndarray]


def positions(random: Random, sets: int, arms: int, rounds: int) -> np.ndarray:
    """Places in the order of execution, as ringside.compare.budget draws them."""
    within = np.argsort(random.random((sets, rounds, arms)), axis=2)
    if arms <= 3:
        within[:, 1] = arms - 1 - within[:, 0]
    return (within + arms * np.arange(rounds)[None, :, None]).transpose(0, 2, 1).astype(float)


def quiet(random: Random, t: np.ndarray) -> np.ndarray:
    """Normal noise, the same in every arm."""
    return NOISE * random.normal(size=t.shape)


def skewed(random: Random, t: np.ndarray) -> np.ndarray:
    """Only ever slower: minus a lognormal of σ = 0.8."""
    return -NOISE * random.lognormal(0, 0.8, size=t.shape)


def outliers(random: Random, t: np.ndarray) -> np.ndarray:
    """Five runs in a hundred are 1.3 to 2 times slower."""
    slower = np.log(random.uniform(1.3, 2, size=t.shape))
    return quiet(random, t) - np.where(random.random(t.shape) < 0.05, slower, 0)


def unequal(random: Random, t: np.ndarray) -> np.ndarray:
    """Every other arm is five times as noisy."""
    return quiet(random, t) * np.where(np.arange(t.shape[1]) % 2, 5, 1)[None, :, None]


def one_wild(times: float) -> Kind:
    """The last arm is so many times as noisy as the others; not among KINDS, see `main`."""

    def kind(random: Random, t: np.ndarray) -> np.ndarray:
        wild = np.arange(t.shape[1]) == t.shape[1] - 1
        return quiet(random, t) * np.where(wild, times, 1)[None, :, None]

    kind.__name__ = f"one_wild_{times:g}"
    return kind


def autocorrelated(random: Random, t: np.ndarray) -> np.ndarray:
    """AR(1) with φ = 0.8 along the order of runs, whichever arm they are of."""
    series = random.normal(size=(t.shape[0], t[0].size))
    for k in range(1, series.shape[1]):
        series[:, k] = 0.8 * series[:, k - 1] + 0.6 * series[:, k]
    return NOISE * _at(series, t)


def drift(random: Random, t: np.ndarray) -> np.ndarray:
    """Twenty times the noise from the first run to the last, in a straight line."""
    return quiet(random, t) - 20 * NOISE * t / t.max()


def sine(random: Random, t: np.ndarray) -> np.ndarray:
    """One slow wave of three times the noise, of any phase."""
    phase = random.uniform(0, 2 * math.pi, size=(t.shape[0], 1, 1))
    return quiet(random, t) + 3 * NOISE * np.sin(2 * math.pi * t / t.max() + phase)


def step(random: Random, t: np.ndarray) -> np.ndarray:
    """Somebody comes in mid-experiment and takes a quarter of the machine."""
    comes = t.max() * random.uniform(0.2, 0.8, size=(t.shape[0], 1, 1))
    return quiet(random, t) + np.where(t >= comes, math.log(0.75), 0)


def rounds(random: Random, t: np.ndarray) -> np.ndarray:
    """What a round has in common is five times the noise."""
    return quiet(random, t) + 5 * NOISE * random.normal(size=(t.shape[0], 1, t.shape[2]))


def missing(random: Random, t: np.ndarray) -> np.ndarray:
    """One run in ten failed."""
    return np.where(random.random(t.shape) < 0.1, np.nan, quiet(random, t))


KINDS = (
    quiet,
    skewed,
    outliers,
    unequal,
    autocorrelated,
    drift,
    sine,
    step,
    rounds,
    missing,
)


# Live rounds: an effect of each launch of each arm, and blocks in passes


def _live(random: Random, shape: tuple[int, ...]) -> np.ndarray:
    return LAUNCH * random.normal(size=(*shape[:3], 1)) + BLOCK * random.normal(size=shape)


def live_quiet(random: Random, shape: tuple[int, ...]) -> np.ndarray:
    """Normal noise at both levels."""
    return _live(random, shape)


def live_skewed(random: Random, shape: tuple[int, ...]) -> np.ndarray:
    """Launches and blocks are only ever slower: minus a lognormal of σ = 0.8."""
    launches = LAUNCH * random.lognormal(0, 0.8, size=(*shape[:3], 1))
    return -launches - BLOCK * random.lognormal(0, 0.8, size=shape)


def live_stalls(random: Random, shape: tuple[int, ...]) -> np.ndarray:
    """Three blocks in a hundred take 1.3 to 3 times as long."""
    slower = np.log(random.uniform(1.3, 3, size=shape))
    return _live(random, shape) - np.where(random.random(shape) < 0.03, slower, 0)


def live_drift(random: Random, shape: tuple[int, ...]) -> np.ndarray:
    """A tenth slower from pass to pass; the place of an arm in a pass is drawn."""
    places = np.argsort(random.random(shape), axis=1) / shape[1]
    return _live(random, shape) - 0.1 * (np.arange(shape[3]) + places)


def live_others(random: Random, shape: tuple[int, ...]) -> np.ndarray:
    """Somebody takes a quarter of the machine from some passes; each arm suffers it differently."""
    begins = random.integers(0, shape[3], size=(shape[0], 1, shape[2], 1))
    lasts = random.integers(1, shape[3], size=begins.shape)
    passes = np.arange(shape[3])
    there = (passes >= begins) & (passes < begins + lasts)
    suffers = random.uniform(0.7, 1.3, size=(*shape[:2], shape[2], 1))
    return _live(random, shape) + math.log(0.75) * there * suffers


def live_launches(random: Random, shape: tuple[int, ...]) -> np.ndarray:
    """In every third launch somebody takes a quarter of the machine, from all arms alike."""
    there = random.random((shape[0], 1, shape[2], 1)) < 1 / 3
    return _live(random, shape) + math.log(0.75) * there


def live_two_modes(random: Random, shape: tuple[int, ...]) -> np.ndarray:
    """Each launch of an arm is fast or a tenth slower; half a percent of noise within."""
    slow = random.random((*shape[:3], 1)) < 0.5
    return math.log(0.9) * slow + 0.005 * random.normal(size=shape)


def live_unequal(random: Random, shape: tuple[int, ...]) -> np.ndarray:
    """Every other arm is five times as noisy."""
    times = np.where(np.arange(shape[1]) % 2, 5, 1)
    return _live(random, shape) * times[None, :, None, None]


def live_wild(times: float) -> LiveKind:
    """The last arm is so many times as noisy as the others."""

    def kind(random: Random, shape: tuple[int, ...]) -> np.ndarray:
        wild = np.arange(shape[1]) == shape[1] - 1
        return _live(random, shape) * np.where(wild, times, 1)[None, :, None, None]

    kind.__name__ = f"live_one_wild_{times:g}"
    return kind


def live_autocorrelated(random: Random, shape: tuple[int, ...]) -> np.ndarray:
    """Blocks of an arm: AR(1) with φ = 0.8 from pass to pass."""
    series = random.normal(size=shape)
    for k in range(1, shape[3]):
        series[..., k] = 0.8 * series[..., k - 1] + 0.6 * series[..., k]
    return LAUNCH * random.normal(size=(*shape[:3], 1)) + BLOCK * series


def live_missing(random: Random, shape: tuple[int, ...]) -> np.ndarray:
    """One run in ten failed, and one block in ten is missing."""
    gone = (random.random((*shape[:3], 1)) < 0.1) | (random.random(shape) < 0.1)
    return np.where(gone, np.nan, _live(random, shape))


LIVE_KINDS = (
    live_quiet,
    live_skewed,
    live_stalls,
    live_drift,
    live_others,
    live_launches,
    live_two_modes,
    live_unequal,
    live_wild(5),
    live_wild(20),
    live_autocorrelated,
    live_missing,
)


def cells() -> list[tuple[int, int]]:
    """(arms, rounds); two arms alone have no interval after three rounds."""
    return [
        (arms, 4 if (arms, count) == (2, 3) else count)
        for arms, count in itertools.product(ARMS, ROUNDS)
    ]


def pairs_of(arms: int) -> tuple[np.ndarray, np.ndarray]:
    """Every pair, as two arrays."""
    return np.triu_indices(arms, 1)


def covered_and_called(
    kind: Kind,
    arms: int,
    count: int,
    *,
    estimator: Estimator = fit_fresh,
    sets: int = SETS,
) -> tuple[float, float, float]:
    """Fresh rounds: share of intervals with the truth, of sets with a false call; half-width."""
    number = KINDS.index(kind) if kind in KINDS else len(KINDS)
    random = np.random.default_rng([arms, count, number])
    t = positions(random, sets, arms, count)
    return _judged(estimator(kind(random, t), t, *pairs_of(arms)))


def live_covered_and_called(
    kind: LiveKind, arms: int, count: int, *, estimator: Estimator = fit_live, sets: int = SETS
) -> tuple[float, float, float]:
    """The same for live rounds."""
    number = [one.__name__ for one in LIVE_KINDS].index(kind.__name__)
    random = np.random.default_rng([arms, count, number])
    return _judged(estimator(kind(random, (sets, arms, count, PASSES)), *pairs_of(arms)))


@dataclass(frozen=True)
class Contest:
    """Two families and serial, the last arm, in many live experiments.

    Attributes:
        fits: of all pairs.
        serial: numbers of the pairs with serial.
        pair: number of the pair of the best arms of both families, by data set.
        best: those arms, of the first family and of the second.
        rivals: from how many arms each was chosen.
    """

    fits: PairFits
    serial: np.ndarray
    pair: np.ndarray
    best: tuple[np.ndarray, np.ndarray]
    rivals: tuple[np.ndarray, np.ndarray]


def contest(blocks: np.ndarray, own: int) -> Contest:
    """The headline of experiments, whose first `own` arms are the first family."""
    arms = blocks.shape[1]
    means = np.nanmean(blocks, axis=(2, 3))
    first, second = means[:, :own].argmax(1), own + means[:, own:-1].argmax(1)
    fits = fit_live(blocks, *pairs_of(arms))
    numbers = np.zeros((arms, arms), int)
    numbers[pairs_of(arms)] = np.arange(fits.error.shape[1])
    numbers += numbers.T
    sets = np.arange(len(blocks))
    near = np.abs(fits.difference) <= fits.half_widths(0.05)

    def rivals(best: np.ndarray, of: range) -> np.ndarray:
        counts = [near[sets, numbers[best, arm]] & (best != arm) for arm in of]
        return np.asarray(1 + np.sum(counts, axis=0))

    of = (rivals(first, range(own)), rivals(second, range(own, arms - 1)))
    return Contest(fits, numbers[-1, :-1], numbers[first, second], (first, second), of)


def headline_missed(
    own: int, other: int, count: int, *, chosen: bool = True, spread: float = 0.0
) -> tuple[float, float]:
    """How often the interval of the best of `own` ÷ the best of `other` arms misses the truth.

    Live rounds, quiet. The shares are of intervals above the true ratio, and of those below it.

    Args:
        own: number of arms of the first family.
        other: of the second one.
        count: launches.
        chosen: whether the interval knows from how many arms each was chosen.
        spread: standard deviation of the arms' true log throughputs.
    """
    random = np.random.default_rng([own, other, count])
    arms = own + other + 1
    true = spread * random.normal(size=(SETS, arms))
    blocks = live_quiet(random, (SETS, arms, count, PASSES)) + true[:, :, None, None]
    found, sets = contest(blocks, own), np.arange(SETS)
    above, below = (
        found.fits.half_widths(0.05 / (of if chosen else np.ones(SETS))[:, None])[sets, found.pair]
        for of in found.rivals
    )
    first, second = found.best
    off = found.fits.difference[sets, found.pair] - (true[sets, first] - true[sets, second])
    return float((off > above).mean()), float((-off > below).mean())


def families_called(kind: LiveKind, own: int, other: int, count: int) -> tuple[float, float]:
    """Shares of experiments with a false call in what is asked first, and among other pairs."""
    random = np.random.default_rng([own, other, count])
    found = contest(kind(random, (SETS, own + other + 1, count, PASSES)), own)
    sets, p_values = np.arange(SETS), found.fits.p_values()
    of = np.where(found.fits.difference[sets, found.pair] > 0, *found.rivals)
    headline = np.minimum(1, p_values[sets, found.pair] * of)
    asked = np.zeros(p_values.shape, dtype=bool)
    asked[sets, found.pair] = asked[:, found.serial] = True
    first = np.column_stack([headline, p_values[:, found.serial]])
    others = p_values[~asked].reshape(SETS, -1)
    one, two = ((holm(family) <= 0.05).any(axis=1).mean() for family in (first, others))
    return float(one), float(two)


def _judged(fits: PairFits) -> tuple[float, float, float]:
    halves = fits.half_widths(0.05)
    known = np.isfinite(halves)
    covered = (np.abs(fits.difference) <= halves)[known].mean()
    called = (holm(fits.p_values()) <= 0.05).any(axis=1).mean()
    return float(covered), float(called), float(np.median(halves[known]))


def _at(series: np.ndarray, t: np.ndarray) -> np.ndarray:
    return np.take_along_axis(series, t.reshape(len(t), -1).astype(int), 1).reshape(t.shape)


def main() -> None:
    """Print the tables of docs/decisions/0005-verdicts.md."""
    print("live: coverage / false calls in %, ± half-width in %, by (arms, launches)")
    print(f"{'':20}", *(f"{arms:>7},{count:<8}" for arms, count in LIVE_CELLS))
    for live in LIVE_KINDS:
        texts = (_told(*live_covered_and_called(live, *cell)) for cell in LIVE_CELLS)
        print(f"{live.__name__.removeprefix('live_'):20}", *texts, flush=True)
    print("headline: intervals above / below the truth in %, by spread of the true speeds")
    for own, other in ((2, 2), (5, 2), (6, 1), (5, 5)):
        told = [
            f"{spread:.0%}: "
            + "/".join(f"{100 * m:.1f}" for m in headline_missed(own, other, n, spread=spread))
            for n in (3, 6)
            for spread in (0, 0.01, 0.03)
        ]
        print(f"{own} and {other}, 3 and 6 launches:", *told, sep="; ", flush=True)
    print("false calls in % of what is asked first / of other pairs; serial is the last arm")
    for own, other in ((1, 2), (2, 5), (6, 8)):
        told = [
            f"{kind.__name__.removeprefix('live_')} "
            + ", ".join(
                "/".join(f"{100 * c:.1f}" for c in families_called(kind, own, other, n))
                for n in (3, 5)
            )
            for kind in (live_quiet, live_two_modes, live_unequal, live_wild(5))
        ]
        print(f"{own} and {other}, 3 and 5 launches:", *told, sep="; ", flush=True)
    print("fresh: as live, by (arms, rounds)")
    print(f"{'':20}", *(f"{arms:>7},{count:<8}" for arms, count in cells()))
    for kind in (*KINDS, one_wild(5), one_wild(20)):
        texts = (_told(*covered_and_called(kind, *cell)) for cell in cells())
        print(f"{kind.__name__:20}", *texts, flush=True)


def _told(covered: float, called: float, half: float) -> str:
    return f"{100 * covered:5.1f}/{100 * called:4.1f} ±{100 * half:4.1f}"


if __name__ == "__main__":
    main()
