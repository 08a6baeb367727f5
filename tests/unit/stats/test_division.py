"""How the budget is divided: Kalibera and Jones' formula, and what is said of it."""

import math
from functools import partial

import numpy as np
import pytest

from ringside.stats.division import (
    LAUNCH_SCATTER,
    best_passes,
    divided,
    division_lines,
    least_budget_s,
    measured_share,
)
from ringside_core.specs import Asked
from tests.unit.stats.factory import arm_of, comparison_of, live_run


def test_the_formula_is_where_the_variance_is_least() -> None:
    """Of all numbers of passes, for a given time; by trying them."""
    start_s, pass_s, scatter = 15.0, 3.0, 0.08
    passes = np.arange(1, 200)

    time_s = start_s + passes * pass_s
    variance = (LAUNCH_SCATTER**2 + scatter**2 / passes) * time_s

    assert best_passes(start_s, pass_s, scatter) == pytest.approx(
        passes[variance.argmin()], abs=0.5
    )
    assert best_passes(1.0, 100.0, 0.001) == 1.0


@pytest.mark.parametrize(
    ("left_s", "launches", "phase_s"),
    [(150.0, 3, 35.0), (30.0, 3, 0.0), (3600.0, 39, 3600 / 39 - 15)],
)
def test_the_time_is_divided(left_s: float, launches: int, phase_s: float) -> None:
    """At least three launches, all of the time; more of it makes more launches, not longer ones."""
    found = divided(
        Asked(), screening_s=60.0, left_s=left_s, start_s=15.0, pass_s=3.0, scatter=0.08
    )  # fmt: skip

    assert found.launches == launches
    assert found.phase_s == pytest.approx(phase_s)
    each_s = 15.0 + 3.0 * math.sqrt(15 / 3) * 0.08 / LAUNCH_SCATTER
    assert launches == max(3, int(left_s / each_s))


def test_launches_can_be_given_and_added() -> None:
    """Those that are there already stay; runs that are alone have no phase."""
    known = partial(divided, screening_s=60.0, start_s=15.0, pass_s=3.0, scatter=0.08)

    assert known(Asked(launches=7), left_s=210.0).launches == 7
    assert known(Asked(launches=7), left_s=210.0).phase_s == pytest.approx(15.0)
    assert known(Asked(), left_s=10.0, made=3).launches == 4
    alone = known(Asked(), left_s=100.0, live=False)
    assert (alone.launches, alone.phase_s) == (6, 0.0)


def test_the_screening_may_take_half_of_the_budget() -> None:
    """The least budget is rounded up to ten seconds."""
    assert [least_budget_s(seconds) for seconds in (60.0, 61.0)] == [120.0, 130.0]


def test_what_is_said_of_the_division() -> None:
    """Nothing before there is one; of runs that are alone no passes."""
    comparison = comparison_of([arm_of("serial")], [])
    alone = divided(
        Asked(), screening_s=60.0, left_s=100.0, start_s=15.0, pass_s=0.0, scatter=0.05, live=False
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
