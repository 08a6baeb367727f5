"""The time of a step at N replicas: what grows with them, and how.

Every function works on arrays, one element for each way in which the truth may differ from what
was measured; element 0 is the best guess. `form` says how the part grows of which theory leaves the
growth open: 0 as the best guess has it, −1 and 1 as the kindest and the unkindest law have it.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

BISECTIONS = 60


def reduced_s(
    *,
    ranks: int,
    compute: Floats,
    compute_at_two: Floats,
    two: Floats,
    pair: Floats,
    among: Floats,
    slower_s: Floats,
    form: Floats,
) -> Floats:
    """Seconds of a synchronous step, T(N) = C + X(N).

    X(2) = T(2) − C(2) is the communication that a step really waits for, A(2) that of an all-reduce
    by itself; r = X(2) − A(2).

    r > 0 is what the all-reduce does not explain. Of it w, but no more than all, is waiting for the
    slower of two replicas, which the scatter of steps at one replica foretells; that grows as m,
    the largest of N equal, normal deviates, does (`expected_largest`), and is less where there is
    less to compute. The rest of it, what distribution costs a replica, stays:
    X(N) = A(N) + r − w + w·m(N)/m(2)·C(N)/C(2). Where nobody knows w all of r is waiting, but none
    of it goes away. Kindest: all of r stays, or is waiting if that is less; unkindest: it grows as
    A does, or as m if that is more.
    r < 0 is communication hidden behind computing. It stays what it is, less if there is less to
    hide behind: X(N) = max(0, A(N) + r·min(1, C(N)/C(2))). Kindest: it grows as A does.

    Args:
        ranks: N.
        compute: C(N), seconds of one replica's part.
        compute_at_two: C(2), the same at two replicas.
        two: T(2), as measured.
        pair: A(2), on the link on which T(2) was measured.
        among: A(N), on the link for which is predicted.
        slower_s: w, what the slower of two replicas is expected to take beyond their mean, at
            C(2); infinite: nobody knows, so all of r is waiting.
        form: see the module.
    """
    rest = two - compute_at_two - pair
    largest = expected_largest(ranks) / expected_largest(2)
    as_reduced = np.maximum(among / np.maximum(pair, 1e-12), 1.0)
    stays = np.ones_like(form)
    waited = np.minimum(slower_s / np.maximum(rest, 1e-12), 1.0)
    grown = 1 + waited * (largest * compute / compute_at_two - 1)
    guess = np.where(np.isinf(slower_s), np.maximum(grown, 1.0), grown)
    unkindest = np.maximum(np.maximum(as_reduced, largest), guess)
    waiting = between_laws(form, np.minimum(stays, grown), guess, unkindest)
    hidden = between_laws(form, as_reduced, stays, stays)
    hidden = hidden * np.minimum(1.0, compute / compute_at_two)
    exposed = among + rest * np.where(rest > 0, waiting, hidden)
    step: Floats = compute + np.maximum(exposed, 0.0)
    return step


def between_laws(form: Floats, kindest: Floats, guess: Floats, unkindest: Floats) -> Floats:
    """The guess at form 0, and straight from it to the kindest at −1 and the unkindest at 1."""
    toward = np.where(form < 0, kindest, unkindest)
    between: Floats = guess + np.abs(form) * (toward - guess)
    return between


@functools.cache
def expected_largest(count: int) -> float:
    """E max of so many independent standard normal deviates; 0 of one.

    ∫ over x > 0 of 1 − Φ(x)ⁿ − (1 − Φ(x))ⁿ (David and Nagaraja 2003, "Order statistics", 3.1).
    """
    from scipy.integrate import trapezoid
    from scipy.special import ndtr

    x = np.linspace(0.0, 12.0, 120_001)
    return float(trapezoid(1 - ndtr(x) ** count - ndtr(-x) ** count, x))


@dataclass(frozen=True)
class Served:
    """What runs with one parameter server tell: seconds of a round, and workers away from it.

    Attributes:
        far_at_one, far_at_two: workers on other hosts than the server, of T(1) and of T(2).
        alone, two: T(1), T(2), both with the same part of the batch for each worker.
        rounds_at_two: of an epoch, in T(2).
        link_s: what the bytes of one direction take on the link of these runs at least; 0: nobody
            knows.
    """

    far_at_one: int
    far_at_two: int
    alone: Floats
    two: Floats
    rounds_at_two: int
    link_s: float = 0.0


def served_s(
    runs: Served,
    *,
    far: int,
    rounds: int,
    computed: Floats,
    moved: float,
    times_longer: float = 1.0,
    least: float,
    form: Floats,
) -> Floats:
    """Seconds for a batch from each of N workers of one parameter server, asynchronously.

    Steps are dealt to the workers in turn, so the slowest decides. A worker on another host than
    the server pulls the weights over the server's link (D), computes (Z) and pushes a gradient over
    it (D); other workers queue for both directions. The time of one round is that of a closed
    network of two stations and a delay (Reiser, Lavenberg 1980, mean value analysis), see
    `round_s`. D and Z follow from T(1) and T(2), see `_station_and_delay`; with many workers
    T(N) → workers·D in long epochs, and 2·workers·D where an epoch is a single round.

    Args:
        runs: at one and two replicas.
        far: workers on other hosts than the server, at N.
        rounds: of an epoch, at N.
        computed: what a worker computes longer at N than in T(1), seconds.
        moved: what D is longer by on the link for which is predicted, seconds, if only its bytes on
            the link take longer.
        times_longer: as many times as long D is there, if all of it is; the interval runs that far.
        least: bytes of one direction ÷ what the link for which is predicted carries; W workers take
            W·least at least.
        form: see the module.
    """
    demand, delay = _station_and_delay(runs)
    delay = np.maximum(delay + computed, 0.0)
    # Where T(1) was beside the server, some worker still is, and what the server does with it.
    nearest = delay if runs.far_at_one else np.maximum(runs.alone + computed, 0.0)
    if far == 0:
        return nearest
    there = np.maximum(demand + moved, 0.0)
    whole = demand * times_longer
    there = between_laws(form, np.minimum(there, whole), there, np.maximum(there, whole))
    seconds = round_s(far, delay, there, form, rounds)
    return np.maximum(np.maximum(nearest, seconds), far * least)


def round_s(
    workers: int, delay: Floats, demand: Floats, form: Floats, rounds: int | None = None
) -> Floats:
    """Seconds in which each of so many workers makes a step, with two shared stations of D each.

    Best guess: mean value analysis; but all workers begin an epoch together, and wait for each
    other at its end, which takes as much longer as if in one of its rounds all of them pulled at
    once, and then all pushed at once: Z + 2·W·D. Kindest: workers take turns so well that only the
    busier direction limits them, max(Z + 2D, W·D). Unkindest: every round is like that first one.

    Args:
        workers: W.
        delay: Z.
        demand: D.
        form: see the module.
        rounds: of an epoch, 1 at least; None: epochs without end.
    """
    queue = np.zeros_like(demand)
    total = delay
    for present in range(1, workers + 1):
        at_station = demand * (1 + queue)
        total = delay + 2 * at_station
        queue = np.where(total > 0, present * at_station / np.maximum(total, 1e-300), 0.0)
    kindest = np.maximum(delay + 2 * demand, workers * demand)
    unkindest = delay + 2 * workers * demand
    guess = total if rounds is None else total + (unkindest - total) / rounds
    return between_laws(form, kindest, guess, unkindest)


def _station_and_delay(runs: Served) -> tuple[Floats, Floats]:
    """D and Z of a worker on another host, with which its rounds take T(1) and T(2).

    If T(1) had one worker on another host and T(2) two, both follow. If the worker of T(1) was
    beside the server, T(1) holds what the server does, on the same processors: a worker elsewhere
    computes for less. Then Z is T(1) at most; D is what its bytes take on the link at least, as
    long as T(2) leaves room for that, and Z what is left of T(2). If both had one worker elsewhere
    they say the same, and the link alone tells D.
    """
    if not runs.far_at_two:
        return np.zeros_like(runs.two), runs.alone
    at_rest = np.zeros_like(runs.two)
    most = _solved(runs, lambda tried: (at_rest, tried))  # beyond it T(2) would have been longer
    demand = np.minimum(runs.link_s, most)
    if runs.far_at_one < runs.far_at_two:
        fitted = _solved(
            runs, lambda tried: (np.maximum(runs.alone - 2 * tried * runs.far_at_one, 0.0), tried)
        )
        if runs.far_at_one:
            return fitted, np.maximum(runs.alone - 2 * fitted, 0.0)
        demand = np.maximum(fitted, demand)
    return demand, _solved(runs, lambda tried: (tried, demand))


def _solved(runs: Served, tried: Callable[[Floats], tuple[Floats, Floats]]) -> Floats:
    """The number between 0 and T(2) of which Z and D follow so that a round takes T(2)."""
    guess = np.zeros_like(runs.two)
    low, high = guess, runs.two
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        delay, demand = tried(middle)
        longer = round_s(runs.far_at_two, delay, demand, guess, runs.rounds_at_two) > runs.two
        low, high = np.where(longer, low, middle), np.where(longer, middle, high)
    return (low + high) / 2
