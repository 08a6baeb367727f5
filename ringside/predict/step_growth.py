"""The time of a step at N replicas: what grows with them, and how.

Every function works on arrays of shape [draws]: one element for each way in which the truth can
differ from what was measured. Element 0 is the best guess. Theory leaves some growth open; `form`
chooses a law for it: 0 is the best guess, −1 the kindest law and 1 the unkindest law.
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
    compute: Floats,
    compute_at_two: Floats,
    two: Floats,
    pair: Floats,
    among: Floats,
    slower_s: Floats,
    growth: Floats,
    form: Floats,
) -> Floats:
    """Seconds of a synchronous step, T(N) = C + X(N).

    X(2) = T(2) − C(2) is the communication that a step waits for. A(2) is the time of an all-reduce
    by itself. r = X(2) − A(2).

    r > 0 is time that the all-reduce does not account for. A part of it, w (at most r), is waiting
    for the slower of two replicas; the scatter of steps at one replica predicts w. It grows by
    m(N)/m(2) (`slowest.Waiting`), and it shrinks if there is less to compute. The rest of r, which
    distribution costs a replica, stays: X(N) = A(N) + r − w + w·m(N)/m(2)·C(N)/C(2). If w is not
    known, all of r is waiting, but it never shrinks. Kindest: all of r stays, or is waiting if that
    is less. Unkindest: r grows as A, or as m if that is more.

    r < 0 is communication that is hidden behind computing. It stays the same, or less if there is
    less computing to hide behind: X(N) = max(0, A(N) + r·min(1, C(N)/C(2))). Kindest: it grows as
    A.

    Args:
        compute: C(N), seconds of one replica's part.
        compute_at_two: C(2), the same at two replicas.
        two: T(2), as measured.
        pair: A(2), on the link on which T(2) was measured.
        among: A(N), on the link of the prediction.
        slower_s: w, the expected time of the slower of two replicas beyond their mean, at C(2);
            infinite: it is not known, so all of r is waiting.
        growth: m(N)/m(2), what N replicas wait for the slowest ÷ what two wait.
        form: see the module.
    """
    rest = two - compute_at_two - pair
    as_reduced = np.maximum(among / np.maximum(pair, 1e-12), 1.0)
    stays = np.ones_like(form)
    waited = np.minimum(slower_s / np.maximum(rest, 1e-12), 1.0)
    grown = 1 + waited * (growth * compute / compute_at_two - 1)
    guess = np.where(np.isinf(slower_s), np.maximum(grown, 1.0), grown)
    unkindest = np.maximum(np.maximum(as_reduced, growth), guess)
    waiting = between_laws(form, np.minimum(stays, grown), guess, unkindest)
    hidden = between_laws(form, as_reduced, stays, stays)
    hidden = hidden * np.minimum(1.0, compute / compute_at_two)
    exposed = among + rest * np.where(rest > 0, waiting, hidden)
    step: Floats = compute + np.maximum(exposed, 0.0)
    return step


def between_laws(form: Floats, kindest: Floats, guess: Floats, unkindest: Floats) -> Floats:
    """The guess at form 0; linear to the kindest law at −1 and to the unkindest law at 1."""
    toward = np.where(form < 0, kindest, unkindest)
    between: Floats = guess + np.abs(form) * (toward - guess)
    return between


@functools.cache
def expected_largest(count: int) -> float:
    """The expected maximum of this many independent standard normal deviates; 0 for one.

    ∫ over x > 0 of 1 − Φ(x)ⁿ − (1 − Φ(x))ⁿ (David and Nagaraja 2003, "Order statistics", 3.1).
    """
    from scipy.integrate import trapezoid
    from scipy.special import ndtr

    x = np.linspace(0.0, 12.0, 120_001)
    return float(trapezoid(1 - ndtr(x) ** count - ndtr(-x) ** count, x))


@dataclass(frozen=True)
class Served:
    """What runs with one parameter server show: seconds of a round, and workers on other hosts.

    Attributes:
        far_at_one, far_at_two: workers on other hosts than the server, of T(1) and of T(2).
        alone, two: T(1), T(2), both with the same part of the batch for each worker.
        rounds_at_two: of an epoch, in T(2).
        link_s: the least time of the bytes of one direction on the link of these runs; 0: it is
            not known.
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

    Steps are dealt to the workers in turn, so the slowest worker decides. A worker on another host
    pulls the weights over the server's link (D), computes (Z), and pushes a gradient over that link
    (D). Other workers queue for both directions. One round takes as long as in a closed network of
    two stations and a delay (Reiser, Lavenberg 1980, mean value analysis), see `round_s`. D and Z
    follow from T(1) and T(2), see `_station_and_delay`. With many workers T(N) → workers·D in long
    epochs, and 2·workers·D if an epoch is a single round.

    Args:
        runs: at one and two replicas.
        far: workers on other hosts than the server, at N.
        rounds: of an epoch, at N.
        computed: how much longer a worker computes at N than in T(1), seconds.
        moved: how much longer D is on the link of the prediction, seconds, if only its bytes on the
            link take longer.
        times_longer: the factor by which D is longer there if all of it grows; an end of the
            interval uses it.
        least: seconds of the bytes of one direction on the link of the prediction; W workers take
            at least W·least.
        form: see the module.
    """
    demand, delay = _station_and_delay(runs)
    delay = np.maximum(delay + computed, 0.0)
    # If T(1) was on the server's host, one worker still is there, together with the server's work.
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
    """Seconds in which each of this many workers makes a step, with two shared stations of D each.

    Best guess: mean value analysis, with one correction. All workers begin an epoch together and
    wait for each other at its end. This costs as much as one round per epoch in which all pull at
    once and then all push at once: Z + 2·W·D. Kindest: workers take turns so well that only the
    busier direction limits them: max(Z + 2D, W·D). Unkindest: every round is Z + 2·W·D.

    Args:
        workers: W.
        delay: Z.
        demand: D.
        form: see the module.
        rounds: of an epoch, at least 1; None: the epoch never ends.
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
    """D and Z of a worker on another host, so that its rounds take T(1) and T(2).

    If T(1) had one worker on another host and T(2) had two, D and Z both follow. If the worker of
    T(1) was on the server's host, T(1) contains the server's work on the same processors, and a
    worker on another host computes for less time. Then Z is at most T(1), D is at least the time of
    its bytes on the link (if T(2) leaves room for it), and Z is the rest of T(2). If T(1) and T(2)
    both had one worker on another host, they say the same, and D comes from the link alone.
    """
    if not runs.far_at_two:
        return np.zeros_like(runs.two), runs.alone
    at_rest = np.zeros_like(runs.two)
    most = _solved(runs, lambda tried: (at_rest, tried))  # a larger D would make T(2) longer
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
    """The number between 0 and T(2) whose Z and D make a round take T(2), by bisection."""
    guess = np.zeros_like(runs.two)
    low, high = guess, runs.two
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        delay, demand = tried(middle)
        longer = round_s(runs.far_at_two, delay, demand, guess, runs.rounds_at_two) > runs.two
        low, high = np.where(longer, low, middle), np.where(longer, middle, high)
    return (low + high) / 2
