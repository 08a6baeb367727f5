"""Made-up and resampled launches of a final; the tables: `python -m tests.unit.stats.simulated`.

All arms are equally fast, unless it is said. Arrays are (data sets, arms, launches, passes), of
logarithms of throughputs.
"""

import csv
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from ringside.stats.contest import Contest, contest
from ringside.stats.division import LAUNCH_SCATTER
from ringside.stats.figure import Figure, Interval
from ringside.stats.final import Fits, Pair, fit, holm, middle

LAUNCH = 0.0155  # of log throughput, between launches of one arm: 2.2 % for the ratio of a pair
BLOCK = 0.02  # between blocks of one launch
PASSES = 12
CELLS = ((2, 3), (3, 3), (4, 3), (5, 3), (3, 6), (4, 6))  # arms, launches
SETS = 2000
RECORDED = Path(__file__).with_name("recorded.csv")
Random = np.random.Generator
Kind = Callable[[Random, tuple[int, ...]], np.ndarray]
Estimator = Callable[..., Fits]


def _both_levels(random: Random, shape: tuple[int, ...]) -> np.ndarray:
    return LAUNCH * random.normal(size=(*shape[:3], 1)) + BLOCK * random.normal(size=shape)


def quiet(random: Random, shape: tuple[int, ...]) -> np.ndarray:
    """Normal noise at both levels."""
    return _both_levels(random, shape)


def skewed(random: Random, shape: tuple[int, ...]) -> np.ndarray:
    """Launches and blocks are only ever slower: minus a lognormal of σ = 0.8."""
    launches = LAUNCH * random.lognormal(0, 0.8, size=(*shape[:3], 1))
    return -launches - BLOCK * random.lognormal(0, 0.8, size=shape)


def stalls(random: Random, shape: tuple[int, ...]) -> np.ndarray:
    """Three blocks in a hundred take 1.3 to 3 times as long."""
    slower = np.log(random.uniform(1.3, 3, size=shape))
    return _both_levels(random, shape) - np.where(random.random(shape) < 0.03, slower, 0)


def drift(random: Random, shape: tuple[int, ...]) -> np.ndarray:
    """A tenth slower from pass to pass; the place of an arm in a pass is drawn."""
    places = np.argsort(random.random(shape), axis=1) / shape[1]
    return _both_levels(random, shape) - 0.1 * (np.arange(shape[3]) + places)


def others(random: Random, shape: tuple[int, ...]) -> np.ndarray:
    """Somebody takes a quarter of the machine from some passes; each arm suffers it differently."""
    begins = random.integers(0, shape[3], size=(shape[0], 1, shape[2], 1))
    lasts = random.integers(1, shape[3], size=begins.shape)
    passes = np.arange(shape[3])
    there = (passes >= begins) & (passes < begins + lasts)
    suffers = random.uniform(0.7, 1.3, size=(*shape[:2], shape[2], 1))
    return _both_levels(random, shape) + math.log(0.75) * there * suffers


def launches(random: Random, shape: tuple[int, ...]) -> np.ndarray:
    """In every third launch somebody takes a quarter of the machine, from all arms equally."""
    there = random.random((shape[0], 1, shape[2], 1)) < 1 / 3
    return _both_levels(random, shape) + math.log(0.75) * there


def two_modes(random: Random, shape: tuple[int, ...]) -> np.ndarray:
    """Each launch of an arm is fast or a tenth slower; half a percent of noise within."""
    slow = random.random((*shape[:3], 1)) < 0.5
    return math.log(0.9) * slow + 0.005 * random.normal(size=shape)


def unequal(random: Random, shape: tuple[int, ...]) -> np.ndarray:
    """Every other arm is five times as noisy."""
    times = np.where(np.arange(shape[1]) % 2, 5, 1)
    return _both_levels(random, shape) * times[None, :, None, None]


def wild(times: float) -> Kind:
    """The last arm is so many times as noisy as the others."""

    def kind(random: Random, shape: tuple[int, ...]) -> np.ndarray:
        wild = np.arange(shape[1]) == shape[1] - 1
        return _both_levels(random, shape) * np.where(wild, times, 1)[None, :, None, None]

    kind.__name__ = f"one_wild_{times:g}"
    return kind


def autocorrelated(random: Random, shape: tuple[int, ...]) -> np.ndarray:
    """Blocks of an arm: AR(1) with φ = 0.8 from pass to pass."""
    series = random.normal(size=shape)
    for k in range(1, shape[3]):
        series[..., k] = 0.8 * series[..., k - 1] + 0.6 * series[..., k]
    return LAUNCH * random.normal(size=(*shape[:3], 1)) + BLOCK * series


def missing(random: Random, shape: tuple[int, ...]) -> np.ndarray:
    """One block in ten is missing. A launch in which a run failed does not count at all."""
    gone = random.random(shape) < 0.1
    return np.where(gone, np.nan, _both_levels(random, shape))


def alone(random: Random, shape: tuple[int, ...]) -> np.ndarray:
    """Runs one after the other (`--fresh`): 8 % of noise, and a machine that slows down by 20 %."""
    places = (
        np.argsort(random.random((*shape[:3], 1)), axis=1)
        + shape[1] * np.arange(shape[2])[None, None, :, None]
    )
    return 0.08 * random.normal(size=(*shape[:3], 1)) - 0.2 * places / places.max()


def only_launches_unequal(random: Random, shape: tuple[int, ...]) -> np.ndarray:
    """Blocks of all arms scatter the same, but launches of the last arm five times as much."""
    last = np.arange(shape[1]) == shape[1] - 1
    launches = LAUNCH * random.normal(size=(*shape[:3], 1))
    return launches * np.where(last, 5, 1)[None, :, None, None] + BLOCK * random.normal(size=shape)


def only_blocks_unequal(random: Random, shape: tuple[int, ...]) -> np.ndarray:
    """Launches of all arms scatter the same, but blocks of every other arm five times as much."""
    times = np.where(np.arange(shape[1]) % 2, 5, 1)[None, :, None, None]
    return LAUNCH * random.normal(size=(*shape[:3], 1)) + BLOCK * times * random.normal(size=shape)


def recorded(name: str) -> Kind:
    """Passes of a recorded comparison, drawn with replacement, all arms of a pass together.

    All passes of a launch are from one recorded launch, whose own middle is taken off: it is mostly
    what few blocks scatter. What a new process changes, 0.7 % of a pair's ratio, is put on.
    """

    def kind(random: Random, shape: tuple[int, ...]) -> np.ndarray:
        launches = _recorded(name)
        of_launch = random.integers(0, len(launches), shape[0] * shape[2])
        found = np.empty((shape[0] * shape[2], shape[1], shape[3]))
        for number, blocks in enumerate(launches):
            here = np.flatnonzero(of_launch == number)
            passes = random.integers(0, blocks.shape[1], (len(here), shape[3]))
            found[here] = blocks[: shape[1], passes].transpose(1, 0, 2)
        found = found.reshape(shape[0], shape[2], shape[1], shape[3]).transpose(0, 2, 1, 3)
        everyone = np.triu_indices(shape[1], 1)
        # What is true of the arms is taken off: the mean over all data sets.
        true = fit(found, *everyone).difference.mean(0)
        shift = np.concatenate([[0.0], -true[: shape[1] - 1]])
        new = LAUNCH_SCATTER / math.sqrt(2) * random.normal(size=(*shape[:3], 1))
        return found - shift[None, :, None, None] + new

    kind.__name__ = f"recorded_{name}"
    return kind


@cache
def _recorded(name: str) -> tuple[np.ndarray, ...]:
    """Of each launch the log rates, (arms, passes that all arms have)."""
    rates: dict[int, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    with RECORDED.open() as file:
        for row in csv.DictReader(file):
            if row["recording"] == name:
                own = rates[int(row["launch"])][row["arm"]]
                own[int(row["pass"])] = -math.log(float(row["step_ms"]))
    found = []
    for of_launch in rates.values():
        arms = [of_launch[label] for label in sorted(of_launch)]
        common = sorted(set(arms[0]).intersection(*arms[1:]))
        blocks = np.array([[own[k] for k in common] for own in arms])
        first = np.zeros(len(arms) - 1, int)
        middles, _ = middle(blocks[1:] - blocks[first])
        found.append(blocks - np.concatenate([[0.0], middles])[:, None])
    return tuple(found)


KINDS = (
    quiet,
    skewed,
    stalls,
    drift,
    others,
    launches,
    two_modes,
    unequal,
    wild(5),
    wild(20),
    autocorrelated,
    missing,
    recorded("short"),
    recorded("long"),
    alone,
)
# What the rule does not promise: docs/decisions/0005-verdicts.md says how it fails.
AGAINST_IT = (only_launches_unequal, only_blocks_unequal)


def covered(
    kind: Kind, arms: int, launches: int, *, estimator: Estimator = fit, sets: int = SETS
) -> tuple[float, float, float]:
    """Share of 95 % intervals that hold the truth: of all pairs, and of the worst; half-width."""
    number = [one.__name__ for one in (*KINDS, *AGAINST_IT)].index(kind.__name__)
    random = np.random.default_rng([arms, launches, number])
    pairs = np.triu_indices(arms, 1)
    fits = estimator(kind(random, (sets, arms, launches, PASSES)), *pairs)
    halves = fits.half_widths()
    there = np.isfinite(halves) & ~np.isnan(fits.difference)
    holds = np.where(there, np.abs(fits.difference) <= halves, np.nan)
    by_pair = np.nanmean(holds, axis=0)
    return float(np.nanmean(holds)), float(by_pair.min()), float(np.median(halves[there]))


def headlines(
    kind: Kind, first: int, second: int, launches: int, *, spread: float = 0.0, sets: int = SETS
) -> tuple[float, float]:
    """Of two families and serial: headlines that are wrong, and intervals that miss the truth.

    A headline is wrong if it names a family that is not faster, or says that there is no difference
    of more than x % and there is one. The truth is the ratio of the fastest of each family.

    Args:
        kind: of the noise.
        first: contenders of the first family.
        second: of the other one.
        launches: of the final.
        spread: standard deviation of the true log throughputs of the contenders.
        sets: experiments.
    """
    random = np.random.default_rng([first, second, launches, int(1e4 * spread)])
    arms = first + second + 1
    true = spread * random.normal(size=(sets, arms))
    blocks = kind(random, (sets, arms, launches, PASSES)) + true[:, :, None, None]
    numbers = list(itertools.combinations(range(arms), 2))
    fits = fit(blocks, *map(np.array, zip(*numbers, strict=True)))
    halves = fits.half_widths()
    wrong = missed = 0
    for one in range(sets):
        found = _headline(fits.difference[one], halves[one], numbers, first, second)
        best = [true[one, :first].max(), true[one, first : first + second].max()]
        ahead = best[0] - best[1] if found.first[0] < str(first) else best[1] - best[0]
        if found.word == "faster":
            wrong += ahead <= 0
        if found.word == "no difference":
            wrong += abs(ahead) > math.log1p(found.most)
        within = found.ratio.interval
        assert within is not None
        missed += not math.log(within.low) <= ahead <= math.log(within.high)
    return wrong / sets, missed / sets


def _headline(
    difference: np.ndarray,
    halves: np.ndarray,
    numbers: Sequence[tuple[int, int]],
    first: int,
    second: int,
) -> Contest:
    pairs = {}
    for (arm, against), d, half in zip(numbers, difference, halves, strict=True):
        within = Interval(math.exp(d - half), math.exp(d + half))
        pair = Pair(str(arm), str(against), Figure(math.exp(d), interval=within, n=3))
        pairs[pair.names] = pair
    one, other = ([str(k) for k in of] for of in (range(first), range(first, first + second)))
    return contest(2, one, other, pairs)


def words_wrong(kind: Kind, arms: int, launches: int, *, sets: int = SETS) -> float:
    """Experiments in which one of the words against serial, the last arm, is wrong."""
    random = np.random.default_rng([arms, launches])
    others = np.arange(arms - 1)
    fits = fit(kind(random, (sets, arms, launches, PASSES)), others, np.full_like(others, arms - 1))
    return float((holm(fits.p_values()) <= 0.05).any(axis=1).mean())


def main() -> None:
    """Print the tables of docs/decisions/0005-verdicts.md."""
    print("coverage of all pairs / of the worst pair in %, ± half-width in %, by (arms, launches)")
    print(f"{'':24}", *(f"{arms:>8},{count:<7}" for arms, count in CELLS))
    for kind in (*KINDS, *AGAINST_IT):
        texts = (_text(*covered(kind, *cell)) for cell in CELLS)
        print(f"{kind.__name__:24}", *texts, flush=True)
    print("headline: wrong / intervals that miss the truth in %, by spread of the true speeds")
    for first, second in ((1, 1), (2, 1), (2, 2)):
        for kind in (quiet, unequal, two_modes):
            found = [
                f"{spread:.0%}: " + "/".join(f"{100 * m:.1f}" for m in
                                             headlines(kind, first, second, 3, spread=spread))
                for spread in (0, 0.01, 0.03)
            ]  # fmt: skip
            print(f"{first} and {second}, {kind.__name__}", *found, sep="; ", flush=True)
    print("against serial: experiments with a wrong word in %, three launches")
    for kind in (quiet, unequal, two_modes, wild(5)):
        print(kind.__name__, *(f"{100 * words_wrong(kind, n, 3):.1f}" for n in (3, 4)), flush=True)


def _text(share: float, worst: float, half: float) -> str:
    return f"{100 * share:5.1f}/{100 * worst:4.1f} ±{100 * half:4.1f}"


if __name__ == "__main__":
    main()
