"""What grows with the number of replicas, against closed forms, limits and chance itself."""

import math

import numpy as np
import pytest

from measure.allreduce_growth import PairCurve, algorithm_of, message_seconds, pair_curve
from measure.step_growth import Served, expected_largest, reduced_s, round_s, served_s
from specs import RefusalError, Timing
from tests.unit.measure.predicted import ALPHA_S, BETA_S, SIZES, curve, ring_s

GUESS = np.zeros(1)


def one(value: float) -> np.ndarray:
    """An array of one guess."""
    return np.array([value])


@pytest.mark.parametrize("ranks", [2, 4, 8, 16, 64])
@pytest.mark.parametrize("size", [SIZES[10], SIZES[16]])
def test_a_ring_grows_as_the_textbook_has_it(ranks: int, size: float) -> None:
    """From two ranks alone: 2(p−1)α + 2(p−1)/p·nβ; every message is of a size that was measured."""
    found = curve().among(ranks, size, algorithm="ring")

    assert found == pytest.approx(ring_s(ranks, size), rel=1e-9)


@pytest.mark.parametrize("ranks", [2, 4, 8, 16, 64])
def test_halving_grows_with_the_logarithm(ranks: int) -> None:
    """Rabenseifner: 2·log₂ p·α + 2(p−1)/p·nβ."""
    size = SIZES[16]

    found = curve().among(ranks, size, algorithm="halving")

    bytes_s = 2 * (ranks - 1) / ranks * size * BETA_S
    assert found == pytest.approx(2 * math.log2(ranks) * ALPHA_S + bytes_s, rel=1e-9)


def test_halving_among_three_sends_everything_once_more() -> None:
    """The third folds its array into another's first, and is sent the sum at the end."""
    size = SIZES[8]

    found = curve().among(3, size, algorithm="halving")

    assert found == pytest.approx(2 * ALPHA_S + size * BETA_S + 2 * ALPHA_S + 2 * size * BETA_S)


def test_what_an_operation_costs_once_does_not_grow_with_the_ranks() -> None:
    """t₂ = 5 ms + 2α + nβ: known α, a ring takes 5 ms + 2(p−1)α + 2(p−1)/p·nβ."""
    slow = PairCurve(SIZES, tuple(s + 5e-3 for s in curve().seconds), 1e9, ALPHA_S)
    size = SIZES[12]

    assert slow.operation_s == pytest.approx(5e-3)
    assert slow.among(2, size, algorithm="ring") == pytest.approx(slow.at(size))
    assert slow.among(8, size, algorithm="ring") == pytest.approx(5e-3 + ring_s(8, size))
    by_halves = 5e-3 + 6 * ALPHA_S + 7 / 4 * size * BETA_S
    assert slow.among(8, size, algorithm="halving") == pytest.approx(by_halves)


def test_the_latency_of_a_message_comes_from_bare_mpi() -> None:
    """The quickest of its smallest all-reduces, both ranks through: 1 ms less 8·10³/10⁸ s."""
    timings = [
        Timing(operation="allreduce", size_bytes=size, seconds=((9e-3, s), (s / 2, s)), wrong=0)
        for size, s in ((1000, 1e-3), (4000, 2e-3))
    ]

    assert message_seconds(timings, 1e8) == pytest.approx(1e-3 - 8e-5)
    assert message_seconds([], 1e8) is None


def test_one_rank_reduces_nothing() -> None:
    """There is nobody to wait for."""
    assert curve().among(1, 1e6, algorithm="ring") == 0


def test_stacks_have_the_algorithm_of_their_library() -> None:
    """Open MPI halves; Gloo and TensorFlow go round."""
    found = {name: algorithm_of(name) for name in ("horovod mpi", "horovod gloo")}

    assert found == {"horovod mpi": "halving", "horovod gloo": "ring"}
    assert algorithm_of("tf.distribute RING") == "ring"


def test_another_link_adds_what_the_bytes_take_longer() -> None:
    """A tenth of the rate: n·8·(1/10⁸ − 1/10⁹) more; what the stack itself costs stays."""
    own_s = 5e-9  # per byte, beside the link's own 8 ns
    measured = curve(beta=BETA_S + own_s)
    size = SIZES[12]

    found = measured.at(size, 1e8)

    assert found == pytest.approx(2 * ALPHA_S + size * (8 / 1e8 + own_s))


def test_no_link_is_faster_than_its_bytes_or_than_nothing_at_all() -> None:
    """On an endless link the latency of the smallest array is left."""
    found = curve().at(SIZES[3], 1e15)

    assert found == pytest.approx(2 * ALPHA_S + SIZES[0] * BETA_S, rel=1e-6)


def test_beyond_what_was_measured() -> None:
    """Smaller arrays take as long as the smallest, larger ones grow with their bytes."""
    found = curve()

    assert found.at(8) == pytest.approx(found.seconds[0])
    assert found.at(SIZES[-1] * 8) == pytest.approx(found.seconds[-1] * 8)


def test_between_two_sizes_latency_and_bytes_add_up() -> None:
    """Of 3 and 5 ms at 1 and 2 MB: 4 ms at 1.5 MB."""
    assert PairCurve((1e6, 2e6), (3e-3, 5e-3)).at(1.5e6) == pytest.approx(4e-3)


def test_a_curve_never_falls() -> None:
    """A larger array that happened to be faster is given the smaller one's time."""
    timings = [
        Timing(operation="allreduce", size_bytes=size, seconds=((s, s),), wrong=0)
        for size, s in ((1024, 2e-3), (4096, 1e-3), (16384, 4e-3))
    ]

    found = pair_curve(timings)

    assert found == PairCurve((1024.0, 4096.0, 16384.0), (2e-3, 2e-3, 4e-3))


def test_only_two_ranks_make_a_curve() -> None:
    """Four would be another algorithm already."""
    timings = [
        Timing(operation="allreduce", size_bytes=size, seconds=((1e-3,) * 4,), wrong=0)
        for size in (1024, 4096)
    ]

    with pytest.raises(RefusalError, match="among two ranks"):
        pair_curve(timings)


def test_the_largest_of_normal_deviates() -> None:
    """1/√π of two, 3/(2√π) of three (closed forms), and of 64 as drawn."""
    drawn = np.random.default_rng(1).standard_normal((200_000, 64)).max(axis=1).mean()

    assert expected_largest(1) == pytest.approx(0, abs=1e-9)
    assert expected_largest(2) == pytest.approx(1 / math.sqrt(math.pi))
    assert expected_largest(3) == pytest.approx(1.5 / math.sqrt(math.pi))
    assert expected_largest(64) == pytest.approx(drawn, rel=2e-3)


def reduced(ranks: int, two: float, form: float = 0.0, among: float = 0.3) -> float:
    """A step of 1 s of computing, whose all-reduce takes 0.2 s among two."""
    found = reduced_s(
        ranks=ranks, compute=one(1.0), compute_at_two=one(1.0), two=one(two), pair=one(0.2),
        among=one(among), form=one(form),
    )  # fmt: skip
    return float(found[0])


@pytest.mark.parametrize("two", [1.0, 1.1, 1.2, 1.5])
def test_two_replicas_are_predicted_as_they_were_measured(two: float) -> None:
    """Whatever hides or waits: the prediction goes through what is known."""
    assert reduced(2, two, among=0.2) == pytest.approx(two)


def test_what_is_hidden_stays_hidden_and_what_waits_grows_slowly() -> None:
    """Hidden 0.05 s: 1 + 0.3 − 0.05. Waiting 0.1 s: as the largest of four against that of two."""
    growth = expected_largest(4) / expected_largest(2)

    assert reduced(4, 1.15) == pytest.approx(1.25)
    assert reduced(4, 1.3) == pytest.approx(1.3 + 0.1 * growth)


def test_the_laws_lie_around_the_guess() -> None:
    """Kindest ≤ guess ≤ unkindest, for hidden and for waiting."""
    for two in (1.1, 1.3):
        kind, guess, unkind = (reduced(8, two, form) for form in (-1.0, 0.0, 1.0))
        assert kind <= guess <= unkind
        assert kind < unkind


def test_less_computing_hides_less() -> None:
    """Strong scaling: with half the computing half as much is hidden."""
    found = reduced_s(
        ranks=4, compute=one(0.5), compute_at_two=one(1.0), two=one(1.1), pair=one(0.2),
        among=one(0.3), form=GUESS,
    )  # fmt: skip

    assert found[0] == pytest.approx(0.5 + 0.3 - 0.05)


def test_one_worker_has_no_queue() -> None:
    """Z + 2D."""
    assert round_s(1, one(3.0), one(0.5), GUESS)[0] == pytest.approx(4.0)


@pytest.mark.parametrize("workers", [2, 3, 7])
def test_a_queue_of_equal_stations(workers: int) -> None:
    """Without computing, two stations: D·(W + 1) (Lazowska and others 1984, balanced systems)."""
    assert round_s(workers, one(0.0), one(0.5), GUESS)[0] == pytest.approx(0.5 * (workers + 1))


def test_a_queue_agrees_with_one_that_is_played() -> None:
    """Exponential times, first come first served, three workers: mean value analysis is exact."""
    random = np.random.default_rng(3)
    delay, demand, workers, rounds = 1.0, 0.6, 3, 60_000
    ready = [(float(random.exponential(delay)), 0, worker) for worker in range(workers)]
    free = [0.0, 0.0]
    done = 0
    now = 0.0
    while done < rounds:
        ready.sort()
        now, station, worker = ready.pop(0)
        if station == 2:
            done += 1
            ready.append((now + float(random.exponential(delay)), 0, worker))
            continue
        free[station] = max(now, free[station]) + float(random.exponential(demand))
        ready.append((free[station], station + 1, worker))

    found = round_s(workers, one(delay), one(demand), GUESS)[0]

    assert found == pytest.approx(workers * now / rounds, rel=0.02)


def test_many_workers_take_what_the_link_of_the_server_takes() -> None:
    """T(N) → N·D."""
    assert round_s(2000, one(1.0), one(0.1), GUESS)[0] == pytest.approx(200.0, rel=0.01)


@pytest.mark.parametrize("far", [(0, 1), (1, 2)])
def test_what_was_put_in_comes_out(far: tuple[int, int]) -> None:
    """Runs at one and two, made with known D and Z, give the round of three others."""
    delay, demand = one(0.8), one(0.3)
    alone, two = (round_s(count, delay, demand, GUESS) for count in far)

    found = served_s(
        Served(*far, alone=alone, two=two), far=3, computed=one(0.0), moved=0.0, least=0.0,
        form=GUESS,
    )  # fmt: skip

    assert found[0] == pytest.approx(round_s(3, delay, demand, GUESS)[0], rel=1e-6)


def test_workers_beside_the_server_use_no_link() -> None:
    """With nobody away from it there is nothing to queue for."""
    runs = Served(0, 0, alone=one(0.8), two=one(0.9))

    found = served_s(runs, far=0, computed=one(0.0), moved=0.0, least=1.0, form=GUESS)

    assert found[0] == pytest.approx(0.8)


def test_a_server_is_never_faster_than_its_link() -> None:
    """T(1) = T(2) shows no communication, but 9 workers' bytes take 9·D at least."""
    runs = Served(0, 1, alone=one(0.1), two=one(0.1))

    found = served_s(runs, far=9, computed=one(0.0), moved=0.0, least=0.05, form=one(-1.0))

    assert found[0] == pytest.approx(0.45)
