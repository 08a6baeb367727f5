"""Rows of arms: medians, ranges, efficiencies; against arithmetic done here."""

import statistics

import pytest

from measure.run_figures import Figure
from measure.summary import Missing, Spread, spread_of, summarize
from specs import Comparison, Outcome, RefusalError
from tests.unit.measure.factory import (
    arm_of,
    comparison_of,
    epoch,
    record,
    run_of,
    simple_run,
    spec_of,
)

FAILED = Outcome(kind="failed", error_class="OSError", reason="no route to host")


def scaling() -> Comparison:
    """Serial, horovod ×1 and ×2, three rounds; throughput is 200 / (2 · train_s)."""
    seconds = {("serial", 1): (1.0, 2.0, 4.0), ("horovod", 1): (2.0, 2.5, 5.0)}
    seconds["horovod", 2] = (1.0, 1.25, 8.0)
    runs = [
        simple_run(backend, replicas, train_s, number=number, position=3 * number + place)
        for place, ((backend, replicas), times) in enumerate(seconds.items())
        for number, train_s in enumerate(times)
    ]
    return comparison_of([arm_of(*key) for key in seconds], runs)


def test_median_range_and_number() -> None:
    """The middle run, not the mean; range and n beside it."""
    spread = spread_of([Figure(5.0), Figure(1.0), Figure(None, "not reached"), Figure(2.0)])

    assert spread == Spread(median=2.0, lowest=1.0, highest=5.0, n=3, of=4, reason="not reached")
    assert spread_of([]) == Missing("no run completed")
    assert spread_of([Figure(None, "x"), Figure(None, "x")]) == Missing("x")


def test_arms_against_hand_arithmetic() -> None:
    """Throughput is 100 examples over the seconds of an epoch, in this made-up case."""
    rows = {row.arm.label: row for row in summarize(scaling()).arms}

    spread = rows["horovod ×2"].throughput

    assert spread is not None
    assert spread.median == statistics.median([100 / 1.0, 100 / 1.25, 100 / 8.0]) == 80
    assert (spread.lowest, spread.highest, spread.n, spread.of) == (12.5, 100, 3, 3)


def test_strong_scaling_efficiency_names_its_base() -> None:
    """Median X(2) ÷ (2 · median X(1)), and the same against serial."""
    summary = summarize(scaling())
    row = summary.arms[2]

    assert summary.serial == "serial"
    assert row.against_group.value == pytest.approx(80 / (2 * 40))
    assert row.against_group.base == "horovod ×1"
    assert row.against_serial.value == pytest.approx(80 / (2 * 50))
    assert row.against_serial.base == "serial"
    assert summary.arms[1].against_serial.value == pytest.approx(40 / 50)


def test_missing_base_gives_no_efficiency() -> None:
    """No arm at one replica, no serial: None, and the reason."""
    arm = arm_of("horovod", 2)

    row = summarize(comparison_of([arm], [simple_run("horovod", 2, 1.0)])).arms[0]

    assert row.against_group.value is None
    assert row.against_serial.value is None
    assert row.against_serial.reason == "the comparison has no such arm"


def test_base_without_a_completed_run_gives_no_efficiency() -> None:
    """The base is named, and so is what it lacks."""
    failed = run_of(arm_of("serial"), [], outcome=FAILED, spec=spec_of("serial"))
    arms = [arm_of("serial"), arm_of("horovod", 2)]

    row = summarize(comparison_of(arms, [failed, simple_run("horovod", 2, 1.0, position=1)])).arms[
        1
    ]

    assert row.against_serial.value is None
    assert row.against_serial.base == "serial"
    assert row.against_serial.reason == "serial: no run completed"


def test_only_completed_runs_count_and_the_others_are_named() -> None:
    """A failed run is neither a zero nor forgotten."""
    good = [simple_run("horovod", 1, s, number=k, position=k) for k, s in enumerate((1.0, 2.0))]
    bad = simple_run("horovod", 1, 0.001, number=2, position=2).replace(outcome=FAILED)

    row = summarize(comparison_of([arm_of("horovod")], [*good, bad])).arms[0]

    assert (row.started, row.completed) == (3, 2)
    assert [run.round for run in row.not_completed] == [2]
    assert row.throughput is not None
    assert row.throughput.median == pytest.approx((100 + 50) / 2)
    assert row.throughput.highest == 100


def test_arm_that_never_ran_is_a_row_without_numbers() -> None:
    """Asked for and not reached is shown, not dropped."""
    row = summarize(comparison_of([arm_of("serial")], [])).arms[0]

    assert (row.started, row.completed) == (0, 0)
    assert row.spreads["startup_s"] == Missing("no run completed")
    assert row.each_example_once == "unknown"


def test_runs_come_in_the_order_in_which_they_were_started() -> None:
    """Whatever their order in the file."""
    comparison = scaling()

    rows = summarize(comparison.replace(runs=tuple(reversed(comparison.runs)))).runs

    assert [row.run.position for row in rows] == list(range(9))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"global_batch": 64}, "the same global_batch. Received: 64 in run 'horovod ×1'"),
        ({"workload": "synthetic"}, "the same workload"),
        ({"epochs": 4}, "the same epochs"),
        ({"seed": 7}, "the same seed"),
        ({"resources": {"cores_per_replica": 2}}, "the same resources.cores_per_replica"),
    ],
)
def test_unlike_runs_are_refused_with_both_values(changes: dict[str, object], words: str) -> None:
    """Numbers of another batch, workload or share of the machine do not stand side by side."""
    other = spec_of("horovod", 1, **changes)
    runs = [
        simple_run("serial", 1, 1.0),
        run_of(arm_of("horovod"), [record(other, [epoch(1.0)] * 2)], position=1),
    ]

    with pytest.raises(RefusalError) as refused:
        summarize(comparison_of([arm_of("serial"), arm_of("horovod")], runs))

    assert words in str(refused.value)


def test_rounds_may_have_seeds_of_their_own() -> None:
    """Within a round all arms share the seed; between rounds it may change."""
    runs = [
        run_of(
            arm_of("serial"),
            [record(spec_of("serial", seed=number), [epoch(1.0)] * 2)],
            number=number,
            position=number,
        )
        for number in (0, 1)
    ]

    assert summarize(comparison_of([arm_of("serial")], runs)).arms[0].completed == 2


def test_runs_must_belong_to_their_arms() -> None:
    """A run of an unknown arm, or at another size than its arm's, is refused."""
    run = simple_run("horovod", 2, 1.0)

    with pytest.raises(RefusalError, match="belong to an arm"):
        summarize(comparison_of([arm_of("serial")], [run]))
    with pytest.raises(RefusalError, match="horovod ×2, and the arm is horovod ×1"):
        summarize(comparison_of([arm_of("horovod")], [run.replace(arm="horovod ×1")]))
    with pytest.raises(RefusalError, match="a label of its own"):
        summarize(comparison_of([arm_of("serial"), arm_of("serial")], []))


def test_two_quality_targets_are_refused() -> None:
    """Time to two different targets is not one column."""
    runs = [
        run_of(
            arm_of("serial"),
            [record(spec_of("serial"), [epoch(1.0)] * 2, quality_target=("accuracy", target))],
            number=number,
            position=number,
        )
        for number, target in enumerate((0.8, 0.9))
    ]

    with pytest.raises(RefusalError, match=r"accuracy ≥ 0\.8; accuracy ≥ 0\.9"):
        summarize(comparison_of([arm_of("serial")], runs))
