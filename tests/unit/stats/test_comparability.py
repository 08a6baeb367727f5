"""Runs that do not stand side by side are refused with both values."""

from typing import Any

import pytest

from ringside.stats.summary import summarize
from ringside_core.specs import Comparison, Outcome, RefusalError, Run
from tests.unit.report.proofs import recertified
from tests.unit.stats.breakdown_case import twin_and_breakdown_arm
from tests.unit.stats.factory import (
    MACHINE,
    arm_of,
    comparison_of,
    epoch,
    record,
    run_of,
    simple_run,
    spec_of,
)


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
    """Another batch, workload or share of the machine gives numbers that cannot be compared."""
    other = spec_of("horovod", 1, **changes)
    runs = [
        simple_run("serial", 1, 1.0),
        run_of(arm_of("horovod"), [record(other, [epoch(1.0)] * 2)], position=1),
    ]

    with pytest.raises(RefusalError) as refused:
        summarize(comparison_of([arm_of("serial"), arm_of("horovod")], runs))

    assert words in str(refused.value)


def test_runs_must_belong_to_their_arms() -> None:
    """A run of an unknown arm, or at another size than its arm's, is refused."""
    run = simple_run("horovod", 2, 1.0)

    with pytest.raises(RefusalError, match="to an arm"):
        summarize(comparison_of([arm_of("serial")], [run]))
    with pytest.raises(RefusalError, match="horovod ×2, and the arm is horovod ×1"):
        summarize(comparison_of([arm_of("horovod")], [run.replace(arm="horovod ×1")]))
    with pytest.raises(RefusalError, match="label of its own"):
        summarize(comparison_of([arm_of("serial"), arm_of("serial")], []))


def with_model(comparison: Comparison, position: int, rank: int = 0, **changes: Any) -> Comparison:
    """The same with something else in one record of one run."""

    def changed(run: Run) -> Run:
        records = tuple(one.replace(**changes) if one.rank == rank else one for one in run.records)
        return run.replace(records=records)

    return comparison.replace(
        runs=tuple(changed(run) if run.position == position else run for run in comparison.runs)
    )


@pytest.mark.parametrize(
    ("rank", "changes", "words"),
    [
        (0, {"initial_digest": "cc" * 32}, "initial_digest"),
        (1, {"initial_digest": "cc" * 32}, "initial_digest"),
        (0, {"gradient_bytes": 8}, "gradient_bytes 8 in run"),
    ],
)
@pytest.mark.parametrize("label", ["horovod ×2", "horovod ×2 again", "horovod ×2 no input"])
def test_a_model_that_changed_between_runs_is_refused_with_both(
    label: str, rank: int, changes: dict[str, Any], words: str
) -> None:
    """For any process of any arm; certificates are of the model of their time."""
    comparison = twin_and_breakdown_arm()
    comparison = with_model(comparison, 0, gradient_bytes=4)
    run = next(one for one in comparison.runs if one.arm == label and one.round == 3)
    comparison = with_model(comparison, run.position, rank, **changes)

    with pytest.raises(RefusalError, match=r"The model must not change while") as refused:
        summarize(comparison)

    said = str(refused.value)
    assert words in said and f"run {label!r} of launch 3 (rank-{rank})" in said
    assert said.count("in run ") == 2


def test_an_arm_that_is_proved_unlike_does_not_take_the_others_with_it() -> None:
    """It begins with other weights, as its certificate says, and is not ranked."""
    comparison = recertified(twin_and_breakdown_arm(), "horovod ×2")
    for run in comparison.runs:
        if run.arm != "serial":
            digest = f"{run.position:02}" * 32
            comparison = with_model(comparison, run.position, initial_digest=digest)

    rows = {row.arm.label: row.comparable for row in summarize(comparison).arms}

    assert rows == {"serial": True, "horovod ×2": False, "horovod ×2 again": False}


def test_mixed_machines_are_refused_with_both_values() -> None:
    """One run has another host, processor or version of a package."""
    runs = [simple_run("serial", 1, 1.0), simple_run("serial", 1, 1.0, number=1, position=1)]
    other = runs[1].records[0].replace(machine=MACHINE.replace(cpu_model="Slow CPU"))
    runs[1] = runs[1].replace(records=(other,))

    with pytest.raises(
        RefusalError, match=r"same processor\. Received: Slow CPU.*Example CPU 9000"
    ):
        summarize(comparison_of([arm_of("serial")], runs))


@pytest.mark.parametrize("field", ["host", "cpu_model"])
def test_runs_are_of_the_machine_of_their_comparison(field: str) -> None:
    """One of several hosts must be it; a failed run may have left no record."""
    arm, elsewhere = arm_of("horovod", 2), MACHINE.replace(host="bench-2")
    runs = [simple_run("horovod", 2, 1.0)]
    records = runs[0].records
    two = runs[0].replace(records=(records[0].replace(machine=elsewhere), records[1]))
    lost = runs[0].replace(
        records=(), outcome=Outcome(kind="failed", reason="boom"), round=1, position=1
    )

    assert summarize(comparison_of([arm], [two, lost])).runs
    with pytest.raises(RefusalError, match=r"bench-1: Example CPU 9000 in run .*other") as error:
        summarize(comparison_of([arm], runs, machine=MACHINE.replace(**{field: "other"})))
    assert "machine of its comparison" in str(error.value)
