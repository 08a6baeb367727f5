"""The model of a step: the slowest of N, the all-reduce and the remainder, each by itself."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.stats import norm

from ringside.predict.step_model import Slowest, all_reduce_s, step_s
from ringside.stats.collectives import fit_cost_model
from tests.unit.predict import measured as made

Floats = NDArray[np.float64]
LAWS = np.array([0.0, -1.0, 1.0])  # the guess, the kindest and the unkindest
COST = fit_cost_model(made.communication().stacks[0].timings)


def slowest(steps: Floats) -> Slowest:
    """With weights of its own."""
    return Slowest(steps, np.random.default_rng(5), LAWS[:1])


# The slowest of N


def test_of_normal_steps_it_is_what_theory_says() -> None:
    """E of the largest of 64 = ∫ N·x·φ(x)·Φ(x)^63 dx; of two, 1 ÷ √π."""
    steps = 1 + 0.01 * norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    largest, _ = quad(lambda x: 64 * x * norm.pdf(x) * norm.cdf(x) ** 63, -8, 8)

    found = slowest(steps)

    assert found.beyond_mean(1)[0] == 0
    assert found.beyond_mean(2)[0] == pytest.approx(0.01 / math.sqrt(math.pi), rel=0.01)
    assert found.beyond_mean(64)[0] == pytest.approx(0.01 * largest, rel=0.01)


@pytest.mark.parametrize("ranks", [8, 1000])
def test_it_is_what_its_distribution_gives_when_it_is_played(ranks: int) -> None:
    """25 steps of weight 1/26, and 1/26 beyond: exponential, of a mean of 0.1 ÷ (2·ln 25)."""
    random = np.random.default_rng(5)
    steps = np.linspace(0.9, 1.1, 25)

    further = 1.1 + random.exponential(0.1 / (2 * math.log(25)), (4000, ranks))
    drawn = np.append(steps, 0.0)[random.integers(0, 26, (4000, ranks))]
    played = np.where(drawn == 0.0, further, drawn)

    expected = float(played.max(axis=1).mean() - played.mean())
    assert slowest(steps).beyond_mean(ranks)[0] == pytest.approx(expected, rel=0.02)


# The all-reduce


@pytest.mark.parametrize("table", [2, 4])
@pytest.mark.parametrize("ranks", [2, 3, 4, 64])
def test_a_ring_is_found_again_at_every_size(table: int, ranks: int) -> None:
    """If messages take all of the latency, it is the ring, message by message."""
    cost = fit_cost_model(made.communication(ranks=table).stacks[0].timings)

    found = all_reduce_s(cost, made.GRADIENT, ranks=ranks, message_s=1.0, form=LAWS)

    assert found[[0, 2]] == pytest.approx(made.ring_s(ranks, made.GRADIENT))


def test_what_an_operation_costs_once_does_not_grow() -> None:
    """2α = 400 µs among two, of which two messages take 60: 340 + 14·30 among eight."""
    found = all_reduce_s(COST, made.GRADIENT, ranks=8, message_s=30e-6, form=LAWS)

    bytes_s = 14 / 8 * made.GRADIENT * made.BETA_S
    assert found - bytes_s == pytest.approx([760e-6, 400e-6, 14 * 200e-6])


# The step


@pytest.mark.parametrize(
    ("known_ms", "beyond", "laws_ms"),
    [
        (152, (0.05, 0.2), (187, 172, 208)),  # r = 7: 120 + 60 + 7; 105 + 60 + 7; r·4
        (152, (0.0, 0.0), (172, 172, 178)),  # no scatter: r = 12 stays, or grows as 60/40
        (130, (0.05, 0.2), (165, 142.5, 165)),  # r = −15 is hidden: 120 + 60 − 15; or 3/8 of A
        (100, (0.05, 0.2), (135, 105, 135)),  # all 40 are hidden, and 5 more; or all 60
    ],
)
def test_what_nothing_explains_stays_or_grows(
    known_ms: float, beyond: tuple[float, float], laws_ms: tuple[float, float, float]
) -> None:
    """C = 100 ms, A(R) = 40 ms, A(N) = 60 ms, m(R) = 5 %, m(N) = 20 %, by all three laws."""
    numbers = {
        "alone": 0.1, "known": known_ms / 1000, "reduce_known": 0.04, "reduce_asked": 0.06,
        "beyond_known": beyond[0], "beyond_asked": beyond[1],
    }  # fmt: skip

    found = step_s(**{name: np.full(3, value) for name, value in numbers.items()}, form=LAWS)

    assert 1000 * found == pytest.approx(np.array(laws_ms))
