"""What grows with the number of replicas, against closed forms, limits and chance itself."""

import itertools
import math

import numpy as np
import pytest

from ringside.predict.allreduce_growth import (
    PairCurve,
    algorithm_of,
    law_of,
    message_seconds,
    pair_curve,
)
from ringside.predict.step_growth import Served, expected_largest, reduced_s, round_s, served_s
from ringside_core.specs import RefusalError, Timing
from tests.unit.predict.predicted import ALPHA_S, BETA_S, SIZES, curve, ring_s

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
    """The third rank adds its array to another's first, and gets the sum at the end."""
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
    """The quickest of its smallest all-reduces, minus the bytes: 1 ms − 8·10³/10⁸ s."""
    timings = [
        Timing(operation="allreduce", size_bytes=size, seconds=((9e-3, s), (s / 2, s)), wrong=0)
        for size, s in ((1000, 1e-3), (4000, 2e-3))
    ]

    assert message_seconds(timings, 1e8) == pytest.approx(1e-3 - 8e-5)
    assert message_seconds([], 1e8) is None
    assert message_seconds(timings, 1e6) == pytest.approx(1e-3)  # its bytes would take 8 ms
    large = timings[1].replace(size_bytes=4096)
    assert message_seconds([large], 1e8) is None  # Open MPI sends more messages there


def test_one_rank_reduces_nothing() -> None:
    """There is nobody to wait for."""
    assert curve().among(1, 1e6, algorithm="ring") == 0


@pytest.mark.parametrize(
    ("stack", "algorithm"),
    [
        ("horovod gloo", "ring"),
        ("tf.distribute RING", "ring"),
        ("horovod mpi:btl_tcp_flags=9", "open_mpi"),
        ("horovod mpi:btl_tcp_flags=9:coll_tuned_allreduce_algorithm=ring", "ring"),
        ("horovod mpi:coll_tuned_allreduce_algorithm=rabenseifner", "halving"),
    ],
)
def test_stacks_have_the_algorithm_of_their_library(stack: str, algorithm: str) -> None:
    """Open MPI decides by size; Gloo and TensorFlow use rings."""
    assert algorithm_of(stack) == algorithm


@pytest.mark.parametrize("stack", ["tf.distribute NCCL", "tf.distribute RING:bytes_per_pack=1024"])
def test_a_stack_whose_growth_nobody_knows_is_refused(stack: str) -> None:
    """It is not treated as a ring."""
    with pytest.raises(RefusalError, match="must be known"):
        algorithm_of(stack)


@pytest.mark.parametrize(
    ("ranks", "size", "law"),
    [
        (4, 8191, "doubling"), (4, 8192, "halving"), (63, 1024, "halving"),
        (64, 262_143, "doubling"), (64, 262_144, "halving"), (128, 131_071, None),
        (255, 131_072, "doubling"), (1024, 4096, "doubling"), (4096, 4096, "ring"),
    ],
)  # fmt: skip
def test_open_mpi_decides_by_ranks_and_bytes(ranks: int, size: int, law: str | None) -> None:
    """As in its source, on both sides of its limits."""
    assert law_of("open_mpi", ranks, size) == law


def test_doubling_sends_the_whole_array_in_every_round() -> None:
    """log₂ p·(α + nβ), and among nine ranks two more messages of n."""
    size = SIZES[8]

    found = curve().among(8, size, algorithm="doubling")
    folded = curve().among(9, size, algorithm="doubling")

    assert found == pytest.approx(3 * (ALPHA_S + size * BETA_S))
    assert folded == pytest.approx(5 * (ALPHA_S + size * BETA_S))


def test_an_array_without_a_law_has_no_time() -> None:
    """Among 128 ranks, below 128 KiB, Open MPI uses two operations."""
    with pytest.raises(RefusalError, match="is not known"):
        curve().among(128, 1e5, algorithm="open_mpi")


@pytest.mark.parametrize("rate", [None, 25e9])
def test_many_ranks_pay_latency_and_not_the_bytes_of_the_smallest_array(rate: float | None) -> None:
    """A ring of 4,096 ranks, 1.2 MB, 10 Mbit/s: 293 bytes a message, far below 4 KiB."""
    slow = curve(beta=8 / 10e6, rate=10e6)

    found = slow.among(4096, 1.2e6, algorithm="ring", bits_per_s=rate)

    assert found == pytest.approx(ring_s(4096, 1.2e6, beta=8 / (rate or 10e6)), rel=1e-6)


def test_a_stack_may_reach_the_same_share_of_every_link() -> None:
    """61 % of 1 Gbit/s: on a tenth of the rate, ten times the bytes' time, same latency."""
    measured = curve(beta=BETA_S / 0.61)
    size = SIZES[12]

    found = measured.in_proportion(1e8)

    assert found.at(size) == pytest.approx(found.at(size, 1e8))
    empty = 2 * ALPHA_S + SIZES[0] * BETA_S * (1 / 0.61 - 1)
    expected = empty + 10 * (size * BETA_S / 0.61 - SIZES[0] * BETA_S * (1 / 0.61 - 1))
    assert found.at(size) == pytest.approx(expected)


def test_another_link_adds_what_the_bytes_take_longer() -> None:
    """A tenth of the rate adds n·8·(1/10⁸ − 1/10⁹); the cost of the stack itself stays."""
    own_s = 5e-9  # per byte, beside the link's own 8 ns
    measured = curve(beta=BETA_S + own_s)
    size = SIZES[12]

    found = measured.at(size, 1e8)

    assert found == pytest.approx(2 * ALPHA_S + size * (8 / 1e8 + own_s))


def test_no_link_is_faster_than_its_bytes_or_than_nothing_at_all() -> None:
    """On an endless link the latency remains."""
    found = curve().at(SIZES[3], 1e15)

    assert found == pytest.approx(2 * ALPHA_S, rel=1e-6)


def test_beyond_what_was_measured() -> None:
    """Smaller arrays: the smallest's time minus bytes. Larger ones grow in proportion."""
    found = curve()

    assert found.at(8) == pytest.approx(2 * ALPHA_S + 8 * BETA_S)
    assert curve(rate=None).at(8) == pytest.approx(found.seconds[0])
    assert found.at(SIZES[-1] * 8) == pytest.approx(found.seconds[-1] * 8)


def test_between_two_sizes_latency_and_bytes_add_up() -> None:
    """From 3 and 5 ms at 1 and 2 MB follow 4 ms at 1.5 MB."""
    assert PairCurve((1e6, 2e6), (3e-3, 5e-3)).at(1.5e6) == pytest.approx(4e-3)


def test_a_curve_never_falls() -> None:
    """If a larger array happened to be faster, it gets the smaller one's time."""
    timings = [
        Timing(operation="allreduce", size_bytes=size, seconds=((s, s),), wrong=0)
        for size, s in ((1024, 2e-3), (4096, 1e-3), (16384, 4e-3))
    ]

    found = pair_curve(timings)

    assert found == PairCurve((1024.0, 4096.0, 16384.0), (2e-3, 2e-3, 4e-3))


def test_only_two_ranks_make_a_curve() -> None:
    """Four ranks would already use another algorithm."""
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


def normal(ranks: int) -> np.ndarray:
    """m(N)/m(2) of normal deviates."""
    return one(expected_largest(ranks) / expected_largest(2))


def reduced(
    ranks: int, two: float, form: float = 0.0, among: float = 0.3, slower_s: float = math.inf
) -> float:
    """A step of 1 s of computing, whose all-reduce takes 0.2 s among two."""
    found = reduced_s(
        compute=one(1.0), compute_at_two=one(1.0), two=one(two), pair=one(0.2), among=one(among),
        slower_s=one(slower_s), growth=normal(ranks), form=one(form),
    )  # fmt: skip
    return float(found[0])


@pytest.mark.parametrize("two", [1.0, 1.1, 1.2, 1.5])
def test_two_replicas_are_predicted_as_they_were_measured(two: float) -> None:
    """Whatever hides or waits, the prediction goes through the measured value."""
    assert reduced(2, two, among=0.2) == pytest.approx(two)


def test_what_is_hidden_stays_hidden_and_what_waits_grows_slowly() -> None:
    """Hidden 0.05 s: 1 + 0.3 − 0.05. Waiting 0.1 s grows as the largest of four does."""
    growth = expected_largest(4) / expected_largest(2)

    assert reduced(4, 1.15) == pytest.approx(1.25)
    assert reduced(4, 1.3) == pytest.approx(1.3 + 0.1 * growth)


def test_the_laws_lie_around_the_guess() -> None:
    """Kindest ≤ guess ≤ unkindest, for hidden time and for waiting."""
    for two, wait_s in itertools.product((1.1, 1.3), (0.0, 0.02, math.inf)):
        kind, guess, unkind = (reduced(8, two, form, slower_s=wait_s) for form in (-1.0, 0.0, 1.0))
        assert kind <= guess <= unkind
        assert kind < unkind


def test_steps_that_wait_for_the_slowest_agree_with_those_that_are_played() -> None:
    """Normal steps of 1 s ± 50 ms, and 70 ms that distribution costs each replica."""
    random = np.random.default_rng(11)
    steps = random.normal(1.0, 0.05, (400_000, 16))
    slower = float((np.maximum(steps[:, 0], steps[:, 1])).mean() - 1)
    for ranks in (2, 4, 16):
        among = 0.2 * ranks / 2
        played = float(steps[:, :ranks].max(axis=1).mean()) + 0.07 + among

        found = reduced(ranks, 1 + slower + 0.07 + 0.2, among=among, slower_s=slower)

        assert found == pytest.approx(played, rel=1e-3)


def test_less_computing_hides_less() -> None:
    """Strong scaling: half the computing hides half as much."""
    found = reduced_s(
        growth=normal(4), compute=one(0.5), compute_at_two=one(1.0), two=one(1.1), pair=one(0.2),
        among=one(0.3), slower_s=one(math.inf), form=GUESS,
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
    """Exponential times, first come first served, three workers: the analysis is exact."""
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


@pytest.mark.parametrize(("workers", "delay"), [(3, 0.04), (3, 1.0), (7, 0.04)])
@pytest.mark.parametrize("rounds", [2, 4, 16])
def test_epochs_agree_with_those_that_are_played(workers: int, delay: float, rounds: int) -> None:
    """Links shared fairly, times that scatter by a third, an epoch that ends with its last worker.

    Within 13 %, where the law without epochs is off by up to a third.
    """
    random = np.random.default_rng(5)

    played = float(np.mean([played_epoch(workers, rounds, delay, random) for _ in range(100)]))

    found = round_s(workers, one(delay), one(1.0), GUESS, rounds)[0]
    assert found == pytest.approx(played / rounds, rel=0.13)


def played_epoch(workers: int, rounds: int, delay: float, random: np.random.Generator) -> float:
    """Seconds in which each worker pulls (1 s alone), computes and pushes (1 s) so many times."""

    def drawn(mean: float) -> float:
        return mean * float(random.gamma(10.0, 0.1))

    phase, todo, left = [0] * workers, [drawn(1.0) for _ in range(workers)], [rounds] * workers
    now = 0.0
    while busy := [worker for worker in range(workers) if left[worker]]:
        crowd = [sum(phase[worker] == station for worker in busy) for station in (0, 1, 2)]
        crowd[1] = 1  # each computes by itself
        passed = min(todo[worker] * crowd[phase[worker]] for worker in busy)
        now += passed
        for worker in busy:
            todo[worker] -= passed / crowd[phase[worker]]
            if todo[worker] < 1e-12:
                phase[worker] = (phase[worker] + 1) % 3
                left[worker] -= phase[worker] == 0
                todo[worker] = drawn(delay if phase[worker] == 1 else 1.0)
    return now


def test_many_workers_take_what_the_link_of_the_server_takes() -> None:
    """T(N) → N·D."""
    assert round_s(2000, one(1.0), one(0.1), GUESS)[0] == pytest.approx(200.0, rel=0.01)


@pytest.mark.parametrize("far", [(0, 1), (1, 2)])
def test_what_was_put_in_comes_out(far: tuple[int, int]) -> None:
    """Runs at one and two, made with known D and Z, give the round of three others."""
    delay, demand = one(0.8), one(0.3)
    alone, two = (round_s(count, delay, demand, GUESS, 8) for count in far)

    found = served_s(
        Served(*far, alone=alone, two=two, rounds_at_two=8), far=3, rounds=4,
        computed=one(0.0), moved=0.0, least=0.0, form=GUESS,
    )  # fmt: skip

    assert found[0] == pytest.approx(round_s(3, delay, demand, GUESS, 4)[0], rel=1e-6)


@pytest.mark.parametrize("rounds", [4, 12])
def test_a_worker_beside_its_server_computes_for_longer(rounds: int) -> None:
    """What the server does is in T(1), and not in a round of a worker elsewhere, Z + 2D.

    Its bytes take D on a link of which the rate is known: Z follows, and three take what they take.
    Without that rate T(1) is taken for Z: three would be too fast by a tenth.
    """
    delay, demand = one(0.06), one(0.265)
    two = round_s(1, delay, demand, GUESS, 12)
    known = Served(0, 1, alone=one(0.19), two=two, rounds_at_two=12, link_s=0.265)
    unknown = Served(0, 1, alone=one(0.19), two=two, rounds_at_two=12)

    found, guessed = (
        served_s(runs, far=3, rounds=rounds, computed=one(0.0), moved=0.0, least=0.0, form=GUESS)[0]
        for runs in (known, unknown)
    )

    expected = round_s(3, delay, demand, GUESS, rounds)[0]
    assert found == pytest.approx(expected, rel=1e-6)
    assert guessed < 0.95 * expected


def test_less_computing_scatters_less() -> None:
    """Strong scaling: a quarter of the computing has a quarter of the waiting."""
    found = reduced_s(
        growth=normal(8), compute=one(0.25), compute_at_two=one(1.0), two=one(1.3), pair=one(0.2),
        among=one(0.3), slower_s=one(0.04), form=GUESS,
    )  # fmt: skip

    growth = expected_largest(8) / expected_largest(2)
    assert found[0] == pytest.approx(0.25 + 0.3 + 0.06 + 0.04 * growth / 4)


def test_what_nobody_knows_does_not_go_away() -> None:
    """Strong scaling to a twentieth of the computing: r of 0.1 s stays, or shrinks at best."""
    stays, kindest = (
        reduced_s(
            growth=normal(8), compute=one(0.05), compute_at_two=one(1.0), two=one(1.3),
            pair=one(0.2),            among=one(0.3), slower_s=one(math.inf), form=one(form),
        )[0]
        for form in (0.0, -1.0)
    )  # fmt: skip

    growth = expected_largest(8) / expected_largest(2)
    assert stays == pytest.approx(0.05 + 0.3 + 0.1)
    assert kindest == pytest.approx(0.05 + 0.3 + 0.1 * growth / 20)


def test_one_worker_elsewhere_in_both_runs_leaves_it_to_the_link() -> None:
    """The server is on the second of two hosts, so T(1) and T(2) are the same kind of round."""
    for two in (0.59, 0.61):
        runs = Served(1, 1, one(0.6), one(two), rounds_at_two=8, link_s=0.25)

        found = served_s(runs, far=2, rounds=8, computed=one(0.0), moved=0.0, least=0.0, form=GUESS)

        assert found[0] == pytest.approx(
            round_s(2, one(two - 0.5), one(0.25), GUESS, 8)[0], rel=1e-6
        )


@pytest.mark.parametrize("far_at_one", [0, 1])
def test_two_are_predicted_as_they_were_measured_whatever_the_link(far_at_one: int) -> None:
    """Even if the link is so slow that a round would take longer than it did."""
    for link_s in (0.0, 0.1, 0.3, 0.9):
        runs = Served(far_at_one, 1, one(0.2), one(0.7), rounds_at_two=8, link_s=link_s)

        found = served_s(runs, far=1, rounds=8, computed=one(0.0), moved=0.0, least=0.0, form=GUESS)

        assert found[0] == pytest.approx(0.7, rel=1e-6)


def test_all_of_the_server_s_part_may_grow_with_the_link() -> None:
    """A tenth of the rate: at worst 10·D, Z + 2·W·10D, though only the bytes need D more."""
    delay, demand = one(0.8), one(0.3)
    alone, two = (round_s(count, delay, demand, GUESS, 4) for count in (1, 2))

    worst = served_s(
        Served(1, 2, alone=alone, two=two, rounds_at_two=4), far=3, rounds=4,
        computed=one(0.0), moved=0.3, times_longer=10.0, least=0.0, form=one(1.0),
    )  # fmt: skip

    assert worst[0] == pytest.approx(0.8 + 2 * 3 * 3.0, rel=1e-6)


def test_workers_beside_the_server_use_no_link() -> None:
    """If no worker is on another host, there is no queue."""
    runs = Served(0, 0, alone=one(0.8), two=one(0.9), rounds_at_two=4)

    found = served_s(runs, far=0, rounds=4, computed=one(0.0), moved=0.0, least=1.0, form=GUESS)

    assert found[0] == pytest.approx(0.8)


def test_a_server_is_never_faster_than_its_link() -> None:
    """T(1) = T(2) shows no communication, but the bytes of 9 workers take at least 9·D."""
    runs = Served(0, 1, alone=one(0.1), two=one(0.1), rounds_at_two=4)

    found = served_s(
        runs, far=9, rounds=4, computed=one(0.0), moved=0.0, least=0.05, form=one(-1.0)
    )

    assert found[0] == pytest.approx(0.45)
