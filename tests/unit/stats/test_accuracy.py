"""Time to accuracy, against sums done by hand and scipy's trimmed mean."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from ringside.stats.accuracy import ArmAccuracy, accuracy_of, olympic_mean, target_breakdown
from ringside_core.specs import (
    Arm,
    Comparison,
    Load,
    Run,
)
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
SERIAL, HOROVOD = arm_of("serial"), arm_of("horovod", 2)


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


def of_epochs(mine: Sequence[int | None], theirs: Sequence[int | None]) -> Comparison:
    """Horovod and serial, with these epochs to the target in each round."""
    runs = [run_to(HOROVOD, one, number) for number, one in enumerate(mine)]
    runs += [run_to(SERIAL, one, number) for number, one in enumerate(theirs)]
    return comparison_of([SERIAL, HOROVOD], runs)


def test_fastest_and_slowest_are_dropped() -> None:
    """Times 10, 12, 14, 16 and 22 s, each with its own seed: the mean of the middle three."""
    runs = [run_to(SERIAL, epochs, number) for number, epochs in enumerate([2, 8, 3, 5, 4])]

    row = row_of(comparison_of([SERIAL], runs), "serial")

    assert (row.reached, row.of, row.seeds) == (5, 5, 5)
    assert row.time_s.value == pytest.approx((12 + 14 + 16) / 3)
    assert row.epochs_to_target == pytest.approx((3 + 4 + 5) / 3)


def test_time_is_start_up_and_epochs_at_their_speed() -> None:
    """From known start-up, epochs and speed the same values come out and add up exactly."""
    runs = [run_to(SERIAL, 3 + k % 2, k, startup_s=7.0, s_per_epoch=1.5) for k in range(6)]

    row = row_of(comparison_of([SERIAL], runs), "serial")

    # 11.5 s and 13 s, three times each; dropped is one of either.
    assert row.epochs_to_target == pytest.approx(3.5)
    assert row.s_per_epoch == pytest.approx(1.5)
    assert row.startup_s == pytest.approx(7.0)
    assert row.time_s.value == pytest.approx(7.0 + 3.5 * 1.5)


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


def test_a_failed_run_did_not_reach_it() -> None:
    """It was started, so it counts, even if its records say that it met the target."""
    runs = [run_to(SERIAL, 3, number) for number in range(6)]
    runs[2] = runs[2].replace(outcome={"kind": "failed", "reason": "boom"})

    row = row_of(comparison_of([SERIAL], runs), "serial")

    assert (row.reached, row.of, row.time_s.reason) == (5, 6, "5 of 6 reached it")


def test_a_workload_without_target_says_so() -> None:
    """The reason differs from that of a target that is not reached."""
    runs = [
        run.replace(records=[one.replace(quality_target=None) for one in run.records])
        for run in (run_to(SERIAL, 3, number) for number in range(5))
    ]

    row = row_of(comparison_of([SERIAL], runs), "serial")

    assert row.time_s.reason == "the workload has no target"


def test_disturbed_rounds_are_left_out() -> None:
    """A sixth run, twice as slow because of other processes, does not count."""
    busy = Load(wall_s=10, cores=2, others_cpu_s=10, steal_cpu_s=0)
    runs = [run_to(SERIAL, 3, number) for number in range(5)]
    runs.append(run_to(SERIAL, 3, 5, s_per_epoch=4.0).replace(load=busy))

    row = row_of(comparison_of([SERIAL], runs), "serial")

    assert row.of == 5
    assert row.time_s.value == pytest.approx(12)


def test_breakdown_arms_have_no_time() -> None:
    """They are not meant to train well."""
    lame = arm_of("serial").replace(label="lame", group="lame", ablation="no_input")

    assert [row.label for row in accuracy_of(comparison_of([SERIAL, lame], []))] == ["serial"]


def test_fewer_epochs_than_the_reference_beyond_chance_are_flagged() -> None:
    """One epoch less with each of six seeds happens by chance once in 64 times."""
    flagged = row_of(of_epochs([4] * 6, [5] * 6), HOROVOD.label).too_fast

    assert flagged == (
        "it meets the target after 4.0 epochs, serial after 5.0 (6 seeds, p = 0.016): "
        "it does not train the same"
    )


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ([5] * 6, [5] * 6),
        ([6] * 6, [5] * 6),
        ([4, 5, 5, 5, 5, 5], [5] * 6),
        ([4, 6, 4, 6, 4, 5], [5] * 6),
        ([4] * 4, [5] * 4),
        ([None] * 6, [5] * 6),
    ],
    ids=["equal", "slower", "one seed", "both ways", "four seeds", "never"],
)
def test_chance_is_not_flagged(mine: Sequence[int | None], theirs: Sequence[int | None]) -> None:
    """Equal, slower, or too few differences to be more than chance."""
    assert row_of(of_epochs(mine, theirs), HOROVOD.label).too_fast == ""


def test_a_reference_that_never_arrives_counts_as_late() -> None:
    """It needs more epochs than it trained, so an arm that arrives is flagged."""
    assert "after 9.0" in row_of(of_epochs([5] * 6, [None] * 6), HOROVOD.label).too_fast


def test_seeds_are_compared_with_themselves() -> None:
    """Seeds differ more than arms do; only pairs of one seed show one epoch less."""
    spread = [3, 4, 5, 6, 7, 8]
    less = [one - 1 for one in spread]

    assert row_of(of_epochs(less, spread), HOROVOD.label).too_fast != ""
    assert row_of(of_epochs(less, spread[::-1]), HOROVOD.label).too_fast == ""


def test_another_global_batch_is_not_compared() -> None:
    """A larger batch takes other steps and may need more or fewer of them."""
    runs = [run_to(HOROVOD, 4, k, global_batch=64) for k in range(6)]
    runs += [run_to(SERIAL, 5, k) for k in range(6)]

    assert row_of(comparison_of([SERIAL, HOROVOD], runs), HOROVOD.label).too_fast == ""


def test_the_gap_in_time_is_start_up_throughput_and_convergence() -> None:
    """8 + 4·3 s against 6 + 5·2 s: each part by hand, and their sum."""
    runs = [run_to(HOROVOD, 4, k, startup_s=8.0, s_per_epoch=3.0) for k in range(3)]
    runs += [run_to(SERIAL, 5, k) for k in range(3)]

    gap = target_breakdown(comparison_of([SERIAL, HOROVOD], runs), HOROVOD.label, "serial")

    assert gap.whole_s.value == pytest.approx(4)
    assert gap.startup_s.value == pytest.approx(2)
    assert gap.throughput_s.value == pytest.approx(1 * 4.5)
    assert gap.convergence_s.value == pytest.approx(-1 * 2.5)
    assert gap.whole_s.n == 3


def test_the_gap_in_time_needs_rounds_in_which_both_arrive() -> None:
    """A round in which one does not arrive has no difference."""
    one = target_breakdown(of_epochs([4, None, 5], [None, 5, 5]), HOROVOD.label, "serial")
    none = target_breakdown(of_epochs([4, None], [None, 5]), HOROVOD.label, "serial")

    assert one.whole_s.n == 1
    assert one.whole_s.value == pytest.approx(0)
    assert none.convergence_s.reason == "in no round both met the target"
