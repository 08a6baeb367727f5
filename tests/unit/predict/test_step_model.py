"""The model of a step: the slowest of N, the all-reduce and the remainder, each by itself."""

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.stats import norm

from ringside.predict.step_model import LEAST_STEPS, Slowest, all_reduce_s, step_s
from ringside.stats.collectives import fit_cost_model
from ringside_core.specs import RefusalError
from tests.unit.predict import measured as made

Floats = NDArray[np.float64]
LAWS = np.array([0.0, -1.0, 1.0])  # the guess, the kindest and the unkindest
COST = fit_cost_model(made.communication().stacks[0].timings)


def slowest(steps: Floats, form: Floats = LAWS[:1]) -> Slowest:
    """With weights of its own."""
    return Slowest(steps, np.random.default_rng(5), form)


def median_by_law(steps: Floats, ranks: int) -> list[float]:
    """Of 500 draws by each law."""
    form = np.concatenate([[0.0], np.repeat(LAWS, 500)])
    return [
        float(np.median(law)) for law in slowest(steps, form).beyond_mean(ranks)[1:].reshape(3, -1)
    ]


# The slowest of N


def test_the_slower_of_two_is_what_all_pairs_say() -> None:
    """With a thousand steps the unseen ones hardly count."""
    steps = np.random.default_rng(2).gamma(2.0, size=1000)

    pairs = [max(x, y) for x, y in itertools.combinations(steps[::2], 2)]

    expected = float(np.mean(pairs)) - steps[::2].mean()
    assert slowest(steps[::2]).beyond_mean(2)[0] == pytest.approx(expected, rel=0.02)


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


def test_what_was_not_seen_divides_the_laws() -> None:
    """25 steps decide among eight, and leave the slowest of a thousand open."""
    steps = np.linspace(0.9, 1.1, 25)

    guess, kindest, unkindest = median_by_law(steps, 1000)

    assert kindest < guess < unkindest
    assert kindest < 0.1  # no further than the longest step
    assert unkindest > 3 * kindest
    few = median_by_law(steps, 8)
    assert few[2] < 1.5 * few[1]


def test_equal_steps_wait_for_nothing() -> None:
    """At no size, by no law."""
    assert slowest(np.ones(30), LAWS).beyond_mean(4096) == pytest.approx(np.zeros(3))


def test_too_few_steps_are_refused() -> None:
    """Nineteen."""
    with pytest.raises(RefusalError, match="20 steps or more"):
        slowest(np.linspace(0.9, 1.1, LEAST_STEPS - 1))


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


def test_one_rank_reduces_nothing_and_the_table_leaves_nothing_open() -> None:
    """Among the ranks of the table all laws agree."""
    alone = all_reduce_s(COST, made.GRADIENT, ranks=1, message_s=0.0, form=LAWS)
    two = all_reduce_s(COST, made.GRADIENT, ranks=2, message_s=30e-6, form=LAWS)

    assert alone == pytest.approx(np.zeros(3))
    assert two == pytest.approx(np.full(3, made.ring_s(2, made.GRADIENT)))


# The step


def step(known: float, *, beyond: tuple[float, float] = (0.05, 0.2)) -> Floats:
    """C = 100 ms, A(R) = 40 ms, A(N) = 60 ms, by all three laws, in ms."""
    numbers = {"alone": 0.1, "known": known, "reduce_known": 0.04, "reduce_asked": 0.06}
    arrays = {name: np.full(3, value) for name, value in numbers.items()}
    known_m, asked_m = (np.full(3, value) for value in beyond)
    return 1000 * step_s(**arrays, beyond_known=known_m, beyond_asked=asked_m, form=LAWS)


def test_time_that_nothing_explains_waits_or_stays() -> None:
    """r = 12 ms, of which 5 wait: 100 + 60 + 12 + 5·(4 − 1). Unkindest: 12·4. Kindest: 12."""
    assert step(0.152) == pytest.approx([187, 172, 208])


def test_replicas_wait_no_longer_than_was_measured() -> None:
    """r = 2 ms, although the steps of one replica say 5: 100 + 60 + 2·4."""
    assert step(0.142) == pytest.approx([168, 162, 168])


def test_hidden_communication_stays_hidden() -> None:
    """r = −10 ms: 100 + 60 − 10. Kindest: a quarter of 60 is hidden. With all hidden: 100 + 20."""
    assert step(0.130) == pytest.approx([150, 145, 150])
    assert step(0.100) == pytest.approx([120, 100, 120])


def test_the_rest_grows_as_the_all_reduce_if_that_is_more() -> None:
    """Without scatter r = 12 ms stays, or grows as 60/40."""
    assert step(0.152, beyond=(0.0, 0.0)) == pytest.approx([172, 172, 178])
