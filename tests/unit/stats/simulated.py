"""Made-up data sets of ten kinds; the table: `python -m tests.unit.stats.simulated`.

All arms are equally fast, so every call is a false alarm. Arrays are (data sets, arms, rounds).
"""

import itertools
import math
from collections.abc import Callable

import numpy as np

from ringside.stats.verdicts import PairFits, fit_pairs, holm

NOISE = 0.08  # of log throughput: what runs of seconds show on a shared machine of two cores
SETS = 2000
ARMS = (2, 3, 4, 16)
ROUNDS = (3, 5, 8, 12)
Random = np.random.Generator
Kind = Callable[[Random, np.ndarray], np.ndarray]
Estimator = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], PairFits]


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
    estimator: Estimator = fit_pairs,
    sets: int = SETS,
) -> tuple[float, float, float]:
    """Share of intervals with the truth in them, of families with a false call; half-width."""
    number = KINDS.index(kind) if kind in KINDS else len(KINDS)
    random = np.random.default_rng([arms, count, number])
    t = positions(random, sets, arms, count)
    fits = estimator(kind(random, t), t, *pairs_of(arms))
    halves = fits.half_widths(0.95)
    known = np.isfinite(halves)
    covered = (np.abs(fits.difference) <= halves)[known].mean()
    called = (holm(fits.p_values()) <= 0.05).any(axis=1).mean()
    return float(covered), float(called), float(np.median(halves[known]))


def _at(series: np.ndarray, t: np.ndarray) -> np.ndarray:
    return np.take_along_axis(series, t.reshape(len(t), -1).astype(int), 1).reshape(t.shape)


def main() -> None:
    """Print the table of docs/decisions/0005-verdicts.md."""
    print("coverage / false calls in %, by (arms, rounds)")
    print(f"{'':15}", *(f"{arms:>4},{count:<5}" for arms, count in cells()))
    for kind in KINDS:
        found = [covered_and_called(kind, *cell) for cell in cells()]
        texts = (f"{100 * covered:5.1f}/{100 * called:4.1f}" for covered, called, _ in found)
        print(f"{kind.__name__:15}", *texts, f" mean {100 * np.mean([f[0] for f in found]):.1f}")
    print("false calls in %, three rounds, by how many times as noisy one arm is")
    for arms in (3, 4, 8, 16):
        told = (
            f"×{times} {100 * covered_and_called(one_wild(times), arms, 3, sets=5 * SETS)[1]:.1f}"
            for times in (5, 20, 100)
        )
        print(f"{arms:2} arms", *told)


if __name__ == "__main__":
    main()
