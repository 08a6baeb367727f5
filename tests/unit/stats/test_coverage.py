"""Intervals and words over 2,000 made-up data sets of each kind; all arms are equally fast."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from ringside.stats.verdicts import PairFits, _drift, fit_pairs, visible_effect
from tests.unit.stats.simulated import (
    KINDS,
    Estimator,
    Kind,
    covered_and_called,
    drift,
    missing,
    pairs_of,
    positions,
    quiet,
)

CELLS = ((2, 5), (4, 3), (4, 8), (16, 5))  # (arms, rounds); the whole table: simulated.py
# 2,000 data sets: the standard error of a share of 5 % is 0.5 %.
LUCK = 0.01


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_intervals_cover_and_words_are_right(kind: Kind) -> None:
    """95 % intervals cover 94 to 97 %, and at most 5 % of experiments make a call."""
    found = np.array([covered_and_called(kind, *cell) for cell in CELLS])
    covered, called = found[:, 0], found[:, 1]

    assert 0.94 <= covered.mean() <= 0.97
    assert covered.min() >= 0.94 - LUCK and covered.max() <= 0.97 + LUCK
    assert called.mean() <= 0.05 + LUCK / 2 and called.max() <= 0.05 + LUCK


def normal_quantiles(logs: Any, t: Any, first: Any, second: Any) -> PairFits:
    """Wrong: as if the noise were known."""
    fits = fit_pairs(logs, t, first, second)
    return dataclasses.replace(fits, freedom=np.where(fits.freedom > 0, 1e6, 0))


def unpaired(logs: Any, t: Any, first: Any, second: Any) -> PairFits:
    """Wrong: the two arms' means, as if no round had anything in common."""
    n = logs.shape[2]
    variance = logs.var(2, ddof=1) / n
    mean = logs.mean(2)
    return PairFits(
        difference=mean[:, first] - mean[:, second],
        error=np.sqrt(variance[:, first] + variance[:, second]),
        freedom=np.full((len(logs), len(first)), 2.0 * (n - 1)),
        rounds=np.full((len(logs), len(first)), float(n)),
        drift_known=np.ones(len(logs), dtype=bool),
    )


def drift_ignored(logs: Any, t: Any, first: Any, second: Any) -> PairFits:
    """Wrong: a paired t-test on whatever order came, though the machine drifts."""
    d = logs[:, first] - logs[:, second]
    n = d.shape[2]
    return PairFits(
        difference=d.mean(2),
        error=d.std(2, ddof=1) / np.sqrt(n),
        freedom=np.full(d.shape[:2], n - 1.0),
        rounds=np.full(d.shape[:2], float(n)),
        drift_known=np.ones(len(d), dtype=bool),
    )


@pytest.mark.parametrize(
    ("wrong", "kind", "arms", "count"),
    [(normal_quantiles, quiet, 4, 5), (unpaired, drift, 4, 5), (drift_ignored, drift, 4, 3)],
)
def test_a_wrong_estimator_is_found_out(
    wrong: Estimator, kind: Kind, arms: int, count: int
) -> None:
    """The same check finds that three wrong estimators miss 94 to 97 %."""
    covered, _, _ = covered_and_called(kind, arms, count, estimator=wrong)

    assert not 0.94 - LUCK <= covered <= 0.97 + LUCK


def test_visible_difference_is_called_four_times_in_five() -> None:
    """A difference of `smallest_visible` is called in 80 % of the data sets."""
    random = np.random.default_rng(5)
    t = positions(random, 4000, 4, 6)
    logs = quiet(random, t)
    fits = fit_pairs(logs, t, *pairs_of(4))
    level = 0.05 / 6
    # The true standard error: that of the estimates themselves.
    effect = visible_effect(round(float(np.median(fits.freedom)), 3), level)
    moved = dataclasses.replace(
        fits, difference=fits.difference + effect * fits.difference.std(axis=0)
    )

    power = ((moved.p_values() <= level) & (moved.difference > 0)).mean()

    assert power == pytest.approx(0.80, abs=0.02)


def test_who_stops_after_seven_rounds_or_more_when_all_are_narrow_still_covers() -> None:
    """Serial, an arm and its twin; stopping after three would cover 1 % less."""
    random = np.random.default_rng(7)
    t = positions(random, 2000, 3, 16)
    logs = quiet(random, t)
    going, covered = np.ones(2000, dtype=bool), np.zeros(2000)
    for count in range(7, 17):
        first, second = np.array([0, 1]), np.array([1, 2])
        fits = fit_pairs(logs[:, :, :count], t[:, :, :count], first, second)
        halves = fits.half_widths(0.95)
        ends = going & ((halves.max(1) <= 0.10) | (count == 16))
        covered[ends] = (np.abs(fits.difference) <= halves)[ends].mean(1)
        going &= ~ends

    assert 0.94 - LUCK <= covered.mean() <= 0.97


def test_fit_with_missing_runs_is_least_squares() -> None:
    """Drift and difference equal NumPy's lstsq on dummy variables."""
    random = np.random.default_rng(3)
    t = positions(random, 1, 4, 6)
    logs = missing(random, t)
    there = ~np.isnan(logs[0])
    rows = [
        [*np.eye(4)[arm], *np.eye(6)[number], t[0, arm, number]]
        for arm, number in np.argwhere(there)
    ]
    slope = np.linalg.lstsq(np.array(rows), logs[0][there], rcond=None)[0][-1]
    both = there[0] & there[1]
    expected = (logs[0, 0] - logs[0, 1] - slope * (t[0, 0] - t[0, 1]))[both].mean()

    fits = fit_pairs(logs, t, np.array([0]), np.array([1]))

    assert not there.all()
    assert fits.difference[0, 0] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("common", [1, 5])
def test_fit_of_arms_that_hardly_meet_is_least_squares(common: int) -> None:
    """One arm has the first half of 25 rounds, the other the second; few are common."""
    random = np.random.default_rng(common)
    t = positions(random, 1, 2, 25)
    logs = quiet(random, t)
    logs[0, 0, 12 + common :] = np.nan
    logs[0, 1, :12] = np.nan
    there = ~np.isnan(logs[0])
    design = np.array([[*np.eye(2)[arm], *np.eye(25)[n]] for arm, n in np.argwhere(there)])
    both = np.column_stack([t[0][there], logs[0][there]])
    left = both - design @ np.linalg.lstsq(design, both, rcond=None)[0]
    expected = float(left[:, 0] @ left[:, 0])

    slope, information = _drift(logs, t)

    assert information[0] == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert (information[0] > 1e-6) == (common > 1)
    if common > 1:
        assert slope[0] == pytest.approx(float(left[:, 0] @ left[:, 1]) / expected, rel=1e-9)
