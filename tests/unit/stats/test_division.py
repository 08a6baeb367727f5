"""How the budget is divided: where the interval is narrowest, and what is said of it."""

from functools import partial

import numpy as np
import pytest
from scipy import stats

from ringside.stats.division import (
    LAUNCH_SCATTER,
    divided,
    division_lines,
    half_width,
    measured_share,
)
from ringside_core.specs import Asked
from tests.unit.stats.factory import arm_of, comparison_of, live_run


def test_the_half_width_is_that_of_simulated_launches() -> None:
    """Of two arms: the paired t interval of launches drawn by NumPy, in the mean square."""
    launches, passes, scatter = 4, 9, 0.05
    random = np.random.default_rng(1)
    new = random.normal(0, LAUNCH_SCATTER, (20_000, launches))
    seen = new + random.normal(0, scatter, (20_000, launches, passes)).mean(-1)
    halves = 3.182446 * seen.std(-1, ddof=1) / np.sqrt(launches)  # t of 3 degrees of freedom

    (found,) = half_width(np.array([launches]), np.array([passes]), scatter, arms=2)

    assert found == pytest.approx(np.sqrt((halves**2).mean()), rel=0.02)


@pytest.mark.parametrize(
    ("left_s", "warm", "launches"),
    [(30.0, 0, 3), (80.0, 0, 3), (150.0, 0, 5), (212.0, 0, 6), (3600.0, 0, 87), (212.0, 6, 5)],
)
def test_the_time_is_divided_where_the_interval_is_narrowest(
    left_s: float, warm: int, launches: int
) -> None:
    """Of all numbers whose launches have eight passes, by trying them; at least three."""
    start_s, pass_s, scatter = 15.0, 1.5, 0.04
    numbers = np.array([r for r in range(3, 300) if left_s / r - start_s >= 8 * pass_s] or [3])
    passes = np.maximum(1, (left_s / numbers - start_s) / pass_s - warm)
    variance = (LAUNCH_SCATTER**2 + scatter**2 / passes) / numbers
    halves = stats.t.ppf(0.975, 2 * (numbers - 1)) * np.sqrt(variance)

    found = divided(
        Asked(), screening_s=60.0, left_s=left_s, start_s=start_s, pass_s=pass_s, scatter=scatter,
        arms=3, warm_passes=warm,
    )  # fmt: skip

    assert found.launches == launches == numbers[halves.argmin()]
    assert found.phase_s == pytest.approx(max(0.0, left_s / launches - start_s))


def test_launches_that_are_there_keep_their_passes() -> None:
    """Five of twelve passes: to add one long launch makes the interval less narrow than many."""
    start_s, pass_s, scatter, made = 15.0, 1.5, 0.04, 5
    numbers = np.arange(1, 8)
    passes = (200.0 / numbers - start_s) / pass_s
    variances = [
        (made * scatter**2 / 12 + k * scatter**2 / p) / (made + k) + LAUNCH_SCATTER**2
        for k, p in zip(numbers, passes, strict=True)
    ]
    total = made + numbers
    halves = stats.t.ppf(0.975, 2 * (total - 1)) * np.sqrt(np.array(variances) / total)

    found = divided(
        Asked(), screening_s=60.0, left_s=200.0, start_s=start_s, pass_s=pass_s, scatter=scatter,
        arms=3, made=made, made_passes=12.0,
    )  # fmt: skip

    assert found.launches == 5 + numbers[halves.argmin()] > 8


def test_a_launch_that_fits_only_just_is_not_planned() -> None:
    """It takes a little longer than the last ones, would not be made, and its time be lost."""
    known = partial(divided, Asked(), screening_s=18.0, start_s=16.0, pass_s=2.0, scatter=0.05)

    just = known(left_s=65.0, arms=3, made=3, made_passes=8.0)  # twice 16 + 8 · 2
    more = known(left_s=70.0, arms=3, made=3, made_passes=8.0)

    assert (just.launches, just.phase_s) == (4, 49.0)
    assert more.launches == 5


def test_without_a_known_pass_three_launches_are_planned() -> None:
    """It was killed before it had chosen."""
    found = divided(
        Asked(), screening_s=60.0, left_s=200.0, start_s=15.0, pass_s=0.0, scatter=0.04, arms=3
    )  # fmt: skip

    assert found.launches == 3


def test_launches_can_be_given_and_added() -> None:
    """Those that are there already stay; runs that are alone have no phase."""
    known = partial(divided, screening_s=60.0, start_s=15.0, pass_s=3.0, scatter=0.08, arms=3)

    assert known(Asked(launches=7), left_s=210.0).launches == 7
    assert known(Asked(launches=7), left_s=210.0).phase_s == pytest.approx(15.0)
    assert known(Asked(), left_s=10.0, made=3).launches == 4
    alone = known(Asked(), left_s=100.0, live=False)
    assert (alone.launches, alone.phase_s) == (6, 0.0)


def test_what_is_said_of_the_division() -> None:
    """Nothing before there is one; of runs that are alone no passes."""
    comparison = comparison_of([arm_of("serial")], [])
    alone = divided(
        Asked(), screening_s=60.0, left_s=100.0, start_s=15.0, pass_s=0.0, scatter=0.05, arms=1,
        live=False,
    )  # fmt: skip

    assert division_lines(comparison) == ()
    first, second = division_lines(comparison.replace(division=alone, finalists=("serial",)))
    assert first == "Screening: 60 s, 24 % of 4.2 min."
    assert second == "Final: 6 launches of serial."


def test_the_part_of_the_time_that_was_measured() -> None:
    """Seconds of the blocks that count ÷ the time from the start of the screening."""
    comparison = comparison_of([arm_of("horovod", 2)], [live_run()], live=True, spent_s=10.0)
    seconds = sum([*range(24, 41), *range(44, 51), *range(54, 61)]) + 1.5 * sum(range(61, 91))

    assert measured_share(comparison) == pytest.approx(seconds / 1000 / 10)
    assert measured_share(comparison.replace(live=False)) is None
