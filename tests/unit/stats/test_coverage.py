"""Intervals and words over 2,000 made-up data sets of each kind; all arms are equally fast."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from ringside.compare.budget import ROUNDS_BEFORE_WIDTH
from ringside.stats.looks import level
from ringside.stats.pairs import PairFits, fit_fresh, fit_live, holm, middle_mean
from ringside.stats.verdicts import most_noise, visible_effect
from ringside_core.specs import Look, Rounds
from tests.unit.stats.factory import arm_of, comparison_of
from tests.unit.stats.simulated import (
    KINDS,
    LIVE_KINDS,
    SETS,
    Estimator,
    Kind,
    LiveKind,
    covered_and_called,
    families_called,
    headline_missed,
    live_covered_and_called,
    live_quiet,
    live_two_modes,
    live_unequal,
    live_wild,
    missing,
    pairs_of,
    positions,
    quiet,
)

pytestmark = pytest.mark.nightly

CELLS = ((2, 5), (4, 3), (4, 8), (16, 5))  # (arms, rounds); the whole table: simulated.py
LIVE_CELLS = ((2, 4), (4, 3), (8, 3))  # (arms, launches)
WIDEST = 0.98  # of three rounds of many arms: what is borrowed from other pairs is careful
# 2,000 data sets: the standard error of a share of 5 % is 0.5 %.
LUCK = 0.01


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_fresh_intervals_cover_and_words_are_right(kind: Kind) -> None:
    """95 % intervals cover 94 to 97 %, and at most 5 % of experiments make a call."""
    found = np.array([covered_and_called(kind, *cell) for cell in CELLS])
    covered, called = found[:, 0], found[:, 1]

    assert 0.94 <= covered.mean() <= 0.97
    assert covered.min() >= 0.94 - LUCK and covered.max() <= WIDEST + LUCK
    assert called.mean() <= 0.05 + LUCK / 2 and called.max() <= 0.05 + LUCK


@pytest.mark.parametrize("kind", LIVE_KINDS, ids=lambda kind: kind.__name__)
def test_live_intervals_cover_and_words_are_right(kind: LiveKind) -> None:
    """With three and four launches 95 % intervals cover 94 % or more, whatever the noise.

    Some cover up to 98.7 %: careful with three launches (docs/decisions/0005-verdicts.md). That
    they are narrow all the same is asked below.
    """
    found = np.array([live_covered_and_called(kind, *cell) for cell in LIVE_CELLS])
    covered, called = found[:, 0], found[:, 1]

    assert covered.mean() >= 0.94 and covered.min() >= 0.94 - LUCK
    assert called.mean() <= 0.05 + LUCK / 2 and called.max() <= 0.05 + LUCK


def only_blocks(blocks: Any, first: Any, second: Any) -> PairFits:
    """Wrong: every block is a sample of its own, as if processes were not started anew."""
    flat = blocks.reshape(*blocks.shape[:2], -1)
    d = flat[:, first] - flat[:, second]
    return paired_t(d)


def pooled(blocks: Any, first: Any, second: Any) -> PairFits:
    """Wrong: one noise for all arms, whatever they show."""
    fits = fit_live(blocks, first, second)
    error = np.sqrt((fits.error**2).mean(1, keepdims=True)) * np.ones_like(fits.error)
    freedom = np.full_like(error, (blocks.shape[1] - 1) * (blocks.shape[2] - 1))
    return dataclasses.replace(fits, error=error, freedom=freedom)


def unmoderated(blocks: Any, first: Any, second: Any) -> PairFits:
    """Wrong where an arm has two modes: each pair's own noise, of three launches."""
    d = middle_mean(blocks[:, first] - blocks[:, second])
    return paired_t(d)


def paired_t(d: Any) -> PairFits:
    """Student's t on differences as (sets, pairs, samples)."""
    n = d.shape[2]
    return PairFits(
        difference=d.mean(2),
        error=d.std(2, ddof=1) / np.sqrt(n),
        freedom=np.full(d.shape[:2], n - 1.0),
        rounds=np.full(d.shape[:2], float(n)),
    )


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [(only_blocks, live_quiet), (pooled, live_unequal), (unmoderated, live_two_modes)],
)
def test_a_wrong_live_estimator_is_found_out(wrong: Estimator, kind: LiveKind) -> None:
    """It covers too little, or it makes false calls in more than 6 %."""
    covered, called, _ = live_covered_and_called(kind, 8, 3, estimator=wrong)

    assert covered < 0.94 - LUCK or called > 0.05 + LUCK


@pytest.mark.parametrize(("own", "other", "launches"), [(6, 1, 6), (5, 2, 3), (2, 5, 3), (2, 2, 6)])
def test_headline_knows_that_its_arms_were_chosen(own: int, other: int, launches: int) -> None:
    """Its interval covers 94 %, and no family is flattered: neither end fails more often."""
    for spread in (0.0, 0.01, 0.03):
        above, below = headline_missed(own, other, launches, spread=spread)
        assert above + below <= 0.06
        assert max(above, below) <= 0.025 + LUCK


@pytest.mark.parametrize("kind", [live_quiet, live_two_modes, live_unequal, live_wild(5)])
def test_what_is_asked_first_is_called_falsely_in_5_percent(kind: LiveKind) -> None:
    """Of equal arms, three launches; serial, which all are held against, may be the noisy one."""
    first, others = families_called(kind, 2, 5, 3)

    assert first <= 0.05 + LUCK and others <= 0.05 + LUCK


@pytest.mark.parametrize(("arms", "launches"), [(2, 4), (4, 3), (8, 5)])
def test_what_would_have_been_seen_would_have_been(arms: int, launches: int) -> None:
    """Over experiments, the printed difference is called in 80 % of new experiments or more."""
    random = np.random.default_rng(5)
    fits = fit_live(live_quiet(random, (2000, arms, launches, 8)), *pairs_of(arms))
    level = 0.05 / fits.error.shape[1]
    limit = stats.t.isf(level / 2, fits.freedom[:, 0]) * fits.error[:, 0]

    def power(noise: Callable[[float], float]) -> float:
        printed = [
            visible_effect(round(float(freedom), 3), level) * noise(freedom) * error
            for freedom, error in zip(fits.freedom[:300, 0], fits.error[:300, 0], strict=True)
        ]
        seen = fits.difference[:, 0] + np.array(printed)[:, None] > limit
        return float(seen.mean())

    assert power(most_noise) >= 0.80
    assert power(lambda _: 1.0) < 0.75  # what the estimated noise alone would promise


@pytest.mark.parametrize("arms", [2, 4])
def test_looking_again_until_something_is_called(arms: int) -> None:
    """Up to nine looks at equal arms call something in 5 %; with 5 % at each look in far more."""
    random = np.random.default_rng(11)
    blocks = live_quiet(random, (SETS, arms, 20, 4))
    begun = comparison_of([arm_of("serial")], [], asked=Rounds(interval_width=0.05, most=100))
    called = {"spent": np.zeros(SETS, bool), "each": np.zeros(SETS, bool)}
    for number, launches in enumerate(range(4, 21, 2)):
        looks = (Look(unix_s=0.0, rounds=launches, asked=begun.asked),) * number
        smallest = holm(fit_live(blocks[:, :, :launches], *pairs_of(arms)).p_values()).min(1)
        called["spent"] |= smallest <= level(begun.replace(looks=looks))
        called["each"] |= smallest <= 0.05

    assert called["spent"].mean() <= 0.05 + LUCK
    assert called["each"].mean() > 0.06


@pytest.mark.parametrize("live", [True, False])
def test_who_stops_after_five_rounds_or_more_when_all_are_narrow_still_covers(live: bool) -> None:
    """Serial, an arm and its twin; of two arms alone, stopping so early would cover 1 % less."""
    random = np.random.default_rng(7)
    t = positions(random, 2000, 3, 14)
    data = live_quiet(random, (2000, 3, 14, 4)) if live else quiet(random, t)
    going, covered = np.ones(2000, dtype=bool), np.zeros(2000)
    first, second = np.array([0, 1]), np.array([1, 2])
    for count in range(ROUNDS_BEFORE_WIDTH, 15):
        so_far = data[:, :, :count]
        fits = (
            fit_live(so_far, first, second)
            if live
            else fit_fresh(so_far, t[:, :, :count], first, second)
        )
        halves = fits.half_widths(0.05)
        ends = going & ((halves.max(1) <= (0.025 if live else 0.10)) | (count == 14))
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

    fits = fit_fresh(logs, t, np.array([0]), np.array([1]))

    assert not there.all()
    assert fits.difference[0, 0] == pytest.approx(expected, abs=1e-9)
