"""Time to accuracy, against sums done by hand."""

from collections.abc import Sequence

import pytest

from ringside.stats.accuracy import ArmAccuracy, accuracy_of
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


def row_of(*met_after: int | None) -> ArmAccuracy:
    """Of an arm whose runs of eight epochs meet the target after so many, or never.

    The first epoch ends 8 s after the command, each other one 2 s later.
    """
    runs = []
    for number, epochs in enumerate(met_after):
        made = [
            epoch(
                1.0,
                end_s=6.0 - LAUNCHER_S + k * 2.0,
                accuracy=0.95 if epochs is not None and k >= epochs else 0.5,
            )
            for k in range(1, 9)
        ]
        spec = spec_of("serial", seed=1 + number, epochs=8)
        began = STARTED_UNIX_S - LAUNCHER_S
        runs.append(run_of(SERIAL, [record(spec, made)], number=number, started_unix_s=began))
    (row,) = accuracy_of(comparison_of([SERIAL], runs))
    return row


def test_fastest_and_slowest_are_dropped() -> None:
    """Times 10, 12, 14, 16 and 22 s, each with its own seed: the mean of the middle three."""
    row = row_of(2, 8, 3, 5, 4)

    assert (row.reached, row.of, row.seeds) == (5, 5, 5)
    assert row.time_s.value == pytest.approx((12 + 14 + 16) / 3)
    assert (row.time_s.interval, row.time_s.reason) == (None, "the rule gives no interval")
    assert row.epochs_to_target == pytest.approx((3 + 4 + 5) / 3)


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
    row = row_of(*epochs)

    assert row.time_s.value is None
    assert row.time_s.reason == reason
    assert (row.epochs_to_target, row.s_per_epoch, row.startup_s) == (None, None, None)
