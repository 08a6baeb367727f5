"""Time to accuracy, against sums done by hand and scipy's trimmed mean."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from ringside.stats.accuracy import ArmAccuracy, accuracy_of, olympic_mean
from ringside_core.specs import Arm, Comparison, Run
from tests.unit.stats.factory import (
    STARTED_UNIX_S,
    arm_of,
    comparison_of,
    epoch,
    record,
    run_of,
    spec_of,
)

LAUNCHER_S = 2.0  # of the start-up
SERIAL = arm_of("serial")


def run_to(
    arm: Arm,
    epochs: int | None,
    number: int,
    *,
    startup_s: float = 6.0,
    s_per_epoch: float = 2.0,
    trained: int = 8,
    **changes: Any,
) -> Run:
    """A run that meets its target after so many epochs, or never."""
    spec = spec_of(arm.backend, arm.replicas, **{"seed": 1 + number, "epochs": trained, **changes})
    made = [
        epoch(
            1.0,
            end_s=startup_s - LAUNCHER_S + k * s_per_epoch,
            accuracy=0.95 if epochs is not None and k >= epochs else 0.5,
        )
        for k in range(1, trained + 1)
    ]
    records = [record(spec, made, rank) for rank in range(spec.topology.num_processes)]
    return run_of(arm, records, number=number, started_unix_s=STARTED_UNIX_S - LAUNCHER_S)


def row_of(comparison: Comparison, label: str) -> ArmAccuracy:
    """Of one arm."""
    return {row.label: row for row in accuracy_of(comparison)}[label]


def test_fastest_and_slowest_are_dropped() -> None:
    """Times 10, 12, 14, 16 and 22 s, each with its own seed: the mean of the middle three."""
    runs = [run_to(SERIAL, epochs, number) for number, epochs in enumerate([2, 8, 3, 5, 4])]

    row = row_of(comparison_of([SERIAL], runs), "serial")

    assert (row.reached, row.of, row.seeds) == (5, 5, 5)
    assert row.time_s.value == pytest.approx((12 + 14 + 16) / 3)
    assert row.epochs_to_target == pytest.approx((3 + 4 + 5) / 3)


def test_the_mean_is_trimmed_and_has_no_interval() -> None:
    """One of nine is cut off at each end, as in scipy; the rule has no interval."""
    values = np.random.default_rng(1).lognormal(2, 0.3, 9)

    estimate = olympic_mean(values.tolist())

    assert estimate.value == pytest.approx(stats.trim_mean(values, 1 / 9 + 1e-12))
    assert (estimate.interval, estimate.reason) == (None, "the rule gives no interval")


@pytest.mark.parametrize(
    ("epochs", "reason"),
    [
        ([3, None, 4, None, 4], "3 of 5 reached it"),
        ([3, 4, 4], "3 runs: 5 are needed"),
        ([3], "1 run: 5 are needed"),
    ],
)
def test_no_mean_without_enough_runs_that_all_reached_it(
    epochs: Sequence[int | None], reason: str
) -> None:
    """The reason stands in place of the number."""
    runs = [run_to(SERIAL, one, number) for number, one in enumerate(epochs)]

    row = row_of(comparison_of([SERIAL], runs), "serial")

    assert row.time_s.value is None
    assert row.time_s.reason == reason
    assert (row.epochs_to_target, row.s_per_epoch, row.startup_s) == (None, None, None)
