"""The longest of many replicas' steps: from the steps that were seen, against simulation."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.stats import norm

from ringside.predict.inputs import inputs_of
from ringside.predict.predict import Asked, predict, step_notes
from ringside.predict.slowest import SeenSteps, Waiting, seen_steps
from ringside.predict.step_growth import expected_largest
from ringside_core.specs import Comparison
from ringside_core.text import plain
from tests.unit.predict import predicted as made
from tests.unit.predict.test_predict_waiting import run_with, uneven
from tests.unit.stats.factory import epoch

Floats = NDArray[np.float64]
Distribution = Callable[[float], float]

COMPUTE_S, SHAKE = 0.1, 0.01
RARE = 1 / 1000
ROUNDS, STEPS = 3, 2000
FAST = made.curve(alpha=10e-6, beta=8 / 25e9, rate=25e9)


def stalling(x: float) -> float:
    """P(step ≤ x): 1 ± 1 % normally; one in a thousand twice as long."""
    usual, rare = norm.cdf(x, 1, SHAKE), norm.cdf(x, 2, SHAKE)
    return float((1 - RARE) * usual + RARE * rare)


def normal(x: float) -> float:
    """P(step ≤ x) of 1 ± 1 %."""
    return float(norm.cdf(x, 1, SHAKE))


def exponential(x: float) -> float:
    """P(step ≤ x) of 0.95 and an exponential tail of mean 0.05."""
    return 1 - math.exp(-(x - 0.95) / 0.05) if x > 0.95 else 0.0


def longest(below: Distribution, ranks: int) -> float:
    """E of the longest of so many steps = ∫ 1 − F(x)^N from 0, where no step is below 0."""
    value, _ = quad(lambda x: 1 - below(x) ** ranks, 0, 4, limit=2000, points=[0.95, 1, 1.05, 2])
    return float(value)


def drawn(below: Distribution, random: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Steps of this distribution."""
    if below is exponential:
        return 0.95 + random.exponential(0.05, shape)
    usual = random.normal(1, SHAKE, shape)
    return usual + (random.random(shape) < RARE if below is stalling else 0)


def experiment(below: Distribution, random: np.random.Generator) -> Comparison:
    """Three rounds of 2,000 steps at one and at two replicas, played step by step."""
    pair = FAST.at(made.GRADIENT)
    played = made.comparison({1: COMPUTE_S, 2: COMPUTE_S}, rounds=ROUNDS)
    runs = []
    for run in played.runs:
        ranks = run.spec.topology.num_replicas
        steps = COMPUTE_S * drawn(below, random, (STEPS, ranks)).max(axis=1)
        ends = tuple(np.cumsum(steps + (pair if ranks == 2 else 0)))
        batch = run.spec.global_batch
        told = epoch(float(ends[-1]), step_end_s=ends, examples=STEPS * batch)
        records = tuple(one.replace(epochs=(told, told)) for one in run.records)
        runs.append(run.replace(records=records))
    return played.replace(runs=tuple(runs))


def steps_ms(comparison: Comparison, *sizes: int) -> list[tuple[float, float, float]]:
    """(step, low, high) of each size, with the all-reduces of the fast link."""
    stacks, _ = inputs_of(comparison, made.communication(rate=25e9), 25e9)
    (one,) = (dataclasses.replace(stack, curve=FAST) for stack in stacks.values())
    (found,), _ = predict([one], Asked(replicas=sizes), comparison)
    return [(s.step_ms, s.low_ms or math.nan, s.high_ms or math.nan) for s in found.steps]


def truth_ms(below: Distribution, ranks: int) -> float:
    """The longest step, then the all-reduce."""
    among = FAST.among(ranks, made.GRADIENT, algorithm="ring")
    return 1000 * (COMPUTE_S * longest(below, ranks) + among)


def test_the_truth_is_that_of_a_simulation() -> None:
    """The integral and 20,000 drawn groups of 512 agree."""
    random = np.random.default_rng(1)

    for below in (stalling, normal, exponential):
        played = [drawn(below, random, (2000, 512)).max(axis=1).mean() for _ in range(10)]
        assert longest(below, 512) == pytest.approx(float(np.mean(played)), rel=5e-3)


def test_rare_stalls_decide_among_many() -> None:
    """One step of a thousand is twice as long: the guess is right to 10 %, the interval holds."""
    (at, low, high), *_ = steps_ms(experiment(stalling, np.random.default_rng(2)), 512)

    truth = truth_ms(stalling, 512)
    assert at == pytest.approx(truth, rel=0.1)
    assert low <= truth <= high


@pytest.mark.nightly
@pytest.mark.parametrize("below", [stalling, normal, exponential])
def test_intervals_hold_the_truth(below: Distribution) -> None:
    """In 38 of 40 experiments or more, up to two thirds of the number of steps that were seen."""
    random = np.random.default_rng(3)
    sizes, count = (8, 64, 512, 4096), 40
    held = dict.fromkeys(sizes, 0)
    truth = {size: truth_ms(below, size) for size in sizes}
    for _ in range(count):
        found = steps_ms(experiment(below, random), *sizes)
        for size, (_, low, high) in zip(sizes, found, strict=True):
            held[size] += low <= truth[size] <= high

    assert min(held.values()) >= 38, held


def test_how_often_the_slowest_is_beyond_all_that_was_seen() -> None:
    """N ÷ (N + n) for any distribution: 30 of 90 log-normal draws, 20,000 times."""
    random = np.random.default_rng(4)
    draws = random.lognormal(0, 1, (20_000, 90))
    beyond = float(np.mean(draws[:, :30].max(axis=1) > draws[:, 30:].max(axis=1)))

    assert SeenSteps((1.0, 2.0), (59, 1)).unseen_share(30) == pytest.approx(1 / 3)
    assert beyond == pytest.approx(1 / 3, abs=0.01)


@pytest.mark.parametrize("ranks", [8, 1000])
def test_the_guess_is_what_its_distribution_gives_when_it_is_played(ranks: int) -> None:
    """Ten steps of weight 1/11, and 1/11 beyond: exponential, of a mean of 0.1 ÷ (2·ln 10).

    The laws at both ends lie around the guess, far apart where a hundred times as many replicas
    wait as steps were seen.
    """
    random = np.random.default_rng(5)
    steps = np.linspace(0.9, 1.1, 10)
    form = np.array([0.0, *np.linspace(-1, 1, 2000)])

    waiting = Waiting(SeenSteps(tuple(steps), (1,) * 10), random, form)

    further = 1.1 + random.exponential(0.1 / (2 * math.log(10)), (4000, ranks))
    drawn = np.append(steps, 0.0)[random.integers(0, 11, (4000, ranks))]
    played = np.where(drawn == 0.0, further, drawn)
    two = np.maximum(played[:, ::2], played[:, 1::2]).mean() - played.mean()
    growth = waiting.growth(ranks)
    assert growth[0] == pytest.approx((played.max(axis=1).mean() - played.mean()) / two, rel=0.02)
    kindest, unkindest = np.median(growth[1:200]), np.median(growth[-200:])
    assert kindest < growth[0] < unkindest
    assert (unkindest > 3 * kindest) == (ranks == 1000)


def test_steps_that_are_timed_together_scatter_more_by_themselves() -> None:
    """Four in one time: a mean of four is √4 times nearer to the mean."""
    plain, four = (seen_steps([run_with(uneven([500, 90, 60, 150], each))]) for each in (1, 4))

    assert plain is not None and four is not None
    assert plain.values == pytest.approx((0.6, 0.9, 1.5))
    assert four.values == pytest.approx((0.2, 0.8, 2.0))
    assert plain.count == 3


def test_equal_steps_and_unknown_steps_are_not_seen() -> None:
    """Then waiting grows as that of normal deviates."""
    assert seen_steps([]) is None
    assert seen_steps([run_with(uneven([500, 90, 90, 90]))]) is None
    assert seen_steps([run_with(uneven([500, 90, 60, 150]), gpus=("A100",))]) is None
    unknown = Waiting(None, np.random.default_rng(6), np.zeros(2))
    assert unknown.growth(64) == pytest.approx(expected_largest(64) / expected_largest(2))


def test_a_note_says_how_many_steps_were_seen_for_how_many_replicas() -> None:
    """6,000 steps less the first of each epoch; 512 ÷ (512 + 5,997) = 7.9 %."""
    comparison = experiment(normal, np.random.default_rng(7))
    stacks, _ = inputs_of(comparison, made.communication(rate=25e9), 25e9)
    (one,) = stacks.values()

    (told,) = step_notes([one], Asked(replicas=(8, 512)))
    (unknown,) = step_notes([dataclasses.replace(one, seen=None)], Asked(replicas=(8,)))

    assert told.startswith("horovod: 5,997 steps of one replica were seen.")
    assert "The slowest of 512 takes longer than any of them in 7.9 % of the steps" in plain(told)
    assert "rare stalls are not foretold" in unknown
    assert step_notes([one], Asked(replicas=(1, 2))) == ()
