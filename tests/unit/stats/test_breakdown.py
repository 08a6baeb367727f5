"""Parts of a step, from runs that are built of known parts."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from ringside.stats.breakdown import Breakdown, breakdown_between, breakdown_of
from ringside.stats.breakdown_arms import breakdown_arms_of
from ringside_core.specs import Arm, Comparison, RefusalError, Run, Shared
from tests.unit.stats.factory import TAKEN, arm_of, comparison_of, epoch, record, run_of, spec_of

BATCH = 32
HOROVOD, MIRRORED, SERIAL = arm_of("horovod", 2), arm_of("mirrored", 2), arm_of("serial")
SHARED = Shared.from_run(spec_of("serial"))

# ms of each run, made of: compute 10, input 2, started 0.5, used 1.5, contention 2.5,
# communication 4, remainder 0.5.
HOROVOD_MS = {
    "horovod ×2": 21.0,
    "horovod ×2 without reduction": 17.0,
    "horovod ×2 without input": 19.0,
    "horovod ×1 at batch 16": 14.0,
    "horovod ×1 unused at batch 16": 12.5,
    "serial ×1 at batch 16": 12.0,
    "serial ×1 at batch 16 without input": 10.0,
    "independent ×2": 14.5,
}
# compute 10, input 3, started 0.25, used 0.25, contention 2.5, communication 1, remainder −5.
MIRRORED_MS = {
    "mirrored ×2": 12.0,
    "mirrored ×2 without reduction": 11.0,
    "mirrored ×2 without input": 9.0,
    "mirrored ×1 at batch 16": 12.5,
    "mirrored ×1 unused at batch 16": 12.25,
}


def timed(arm: Arm, ms: float, number: int) -> Run:
    """A run of three epochs of two steps, each step of the counted ones taking so long."""
    spec = spec_of(
        arm.backend,
        arm.replicas,
        global_batch=arm.global_batch or BATCH,
        ablation=arm.ablation,
        save="record",
        options=arm.options,
    )
    epochs = [epoch(9.0), epoch(2 * ms / 1000), epoch(2 * ms / 1000)]
    processes = spec.topology.num_processes
    own: dict[str, Any] = {}
    if arm.backend == "parameter_server":
        processes, own = 1, {"role": "coordinator", "task": "chief-0"}
    records = [record(spec, epochs, rank, **own) for rank in range(processes)]
    return run_of(arm, records, number=number)


def broken_down(
    ms: Mapping[str, float], *arms: Arm, rounds: int = 4, noise: float = 0.0, **changes: Any
) -> Comparison:
    """The arms with their breakdown arms, their times with noise of each run's own."""
    generator = np.random.default_rng(1)
    both = {one.label: one for arm in arms for one in (arm, *breakdown_arms_of(arm, SHARED))}
    chosen = [both[label] for label in ms]
    runs = [
        timed(arm, ms[arm.label] * (1 + noise * generator.normal()), number)
        for number in range(rounds)
        for arm in chosen
    ]
    return comparison_of(chosen, runs, **changes)


def parts_of(found: Breakdown) -> dict[str, float | None]:
    """Names and values of the parts and the remainder."""
    return {part.name: part.ms.value for part in found.parts} | {"remainder": found.remainder.value}


def labels(arms: Sequence[Arm]) -> set[str]:
    """Of these arms."""
    return {arm.label for arm in arms}


def test_two_replicas_need_seven_breakdown_arms() -> None:
    """Exactly these, with the right batch and ablation; none is ranked."""
    arms = {arm.label: arm for arm in breakdown_arms_of(HOROVOD, SHARED)}

    assert set(arms) == set(HOROVOD_MS) - {"horovod ×2"}
    assert all(arm.for_breakdown and arm.group == arm.label for arm in arms.values())
    facts = {
        label: (arm.backend, arm.replicas, arm.global_batch, arm.ablation)
        for label, arm in arms.items()
    }
    assert facts == {
        "horovod ×2 without reduction": ("horovod", 2, None, "no_reduction"),
        "horovod ×2 without input": ("horovod", 2, None, "no_input"),
        "horovod ×1 at batch 16": ("horovod", 1, 16, "none"),
        "horovod ×1 unused at batch 16": ("horovod", 1, 16, "unused"),
        "serial ×1 at batch 16": ("serial", 1, 16, "none"),
        "serial ×1 at batch 16 without input": ("serial", 1, 16, "no_input"),
        "independent ×2": ("independent", 2, None, "no_reduction"),
    }


def test_one_replica_needs_fewer_breakdown_arms() -> None:
    """The arm is its own run at batch B/N, and the serial reference exists already."""
    assert labels(breakdown_arms_of(arm_of("horovod"), SHARED)) == {
        "horovod ×1 at batch 32 without input",
        "horovod ×1 unused at batch 32",
        "serial ×1 at batch 32 without input",
    }
    assert labels(breakdown_arms_of(SERIAL, SHARED)) == {"serial ×1 at batch 32 without input"}


def test_what_cannot_or_need_not_be_run_is_not_asked_for() -> None:
    """No asynchronous run without reduction; nothing for twins and breakdown arms."""
    twin = HOROVOD.replace(label="horovod ×2 again", twin_of=HOROVOD.label)

    assert ("parameter_server", "no_reduction") not in {
        (arm.backend, arm.ablation)
        for arm in breakdown_arms_of(arm_of("parameter_server", 2), SHARED)
    }
    assert breakdown_arms_of(twin, SHARED) == ()
    assert breakdown_arms_of(breakdown_arms_of(HOROVOD, SHARED)[0], SHARED) == ()


def test_on_a_busy_machine_no_part_has_an_interval() -> None:
    """The parts are shown, with the reason."""
    quiet = broken_down({**HOROVOD_MS, **MIRRORED_MS}, HOROVOD, MIRRORED, noise=0.01)
    busy = quiet.replace(runs=tuple(run.replace(load=TAKEN) for run in quiet.runs))

    for made, judged in ((quiet, True), (busy, False)):
        one, two = (
            breakdown_of(made, "horovod ×2"),
            breakdown_between(made, "horovod ×2", "mirrored ×2"),
        )
        for found in (one, two):
            figures = [found.whole, found.remainder, *(part.ms for part in found.parts)]
            assert any(figure.interval for figure in figures) == judged
            assert ("no interval can be trusted" in found.whole.reason) != judged


def test_a_split_gives_back_the_parts_of_which_the_runs_are_made() -> None:
    """Known parts go in, the same parts come out, and nothing is lost."""
    found = breakdown_of(broken_down(HOROVOD_MS, HOROVOD), "horovod ×2")

    assert found.whole.value == pytest.approx(21)
    assert parts_of(found) == pytest.approx(
        {
            "compute": 10,
            "input": 2,
            "framework tax, started": 0.5,
            "framework tax, used": 1.5,
            "contention": 2.5,
            "exposed communication": 4,
            "remainder": 0.5,
        }
    )
    assert found.reason == ""


def test_intervals_are_those_of_paired_differences() -> None:
    """Exposed communication against scipy's paired t interval of the raw times."""
    comparison = broken_down(HOROVOD_MS, HOROVOD, rounds=6, noise=0.1)
    raw: dict[str, list[float]] = {}
    for run in comparison.runs:
        raw.setdefault(run.arm, []).append(1000 * run.records[0].epochs[1].train_s / 2)
    expected = stats.ttest_rel(
        raw["horovod ×2"], raw["horovod ×2 without reduction"]
    ).confidence_interval(0.95)

    found = breakdown_of(comparison, "horovod ×2")

    measured = {part.name: part.ms for part in found.parts}["exposed communication"].interval
    assert measured is not None
    assert (measured.low, measured.high) == pytest.approx((expected.low, expected.high))


def test_a_round_without_one_of_the_runs_is_left_out_of_all_parts() -> None:
    """Otherwise parts and whole would be of different rounds and not add up."""
    comparison = broken_down(HOROVOD_MS, HOROVOD, rounds=5, noise=0.1)
    lost = [
        run
        for run in comparison.runs
        if not (run.round == 2 and run.arm == "horovod ×2 without input")
    ]

    found = breakdown_of(comparison.replace(runs=lost), "horovod ×2")

    assert {part.ms.n for part in found.parts} == {4}
    assert (found.whole.n, found.remainder.n) == (4, 4)


def test_one_replica_has_no_communication_by_definition() -> None:
    """It is 0 by definition; the serial run has only compute and input."""
    ms = {
        "serial": 12.0,
        "horovod ×1": 14.0,
        "horovod ×1 at batch 32 without input": 11.0,
        "horovod ×1 unused at batch 32": 12.5,
        "serial ×1 at batch 32 without input": 10.0,
    }
    comparison = broken_down(ms, arm_of("horovod"), SERIAL)

    one, serial = breakdown_of(comparison, "horovod ×1"), breakdown_of(comparison, "serial")

    assert parts_of(one) == pytest.approx(
        {
            "compute": 10,
            "input": 3,
            "framework tax, started": 0.5,
            "framework tax, used": 1.5,
            "contention": 0,
            "exposed communication": 0,
            "remainder": -1,
        }
    )
    assert one.parts[-1].ms.reason == "0 by definition: one replica"
    assert parts_of(serial)["input"] == pytest.approx(2)
    assert serial.remainder.value == 0


def test_the_asynchronous_arm_keeps_its_communication_in_the_remainder() -> None:
    """It cannot be left out; two workers' steps make one global batch."""
    arm = arm_of("parameter_server", 2)
    needed = breakdown_arms_of(arm, SHARED)
    ms = {arm.label: 20.0} | dict.fromkeys(labels(needed), 10.0)
    comparison = broken_down(ms, arm)

    found = breakdown_of(comparison, arm.label)

    # 40 ms in an epoch of 2 steps, each of one worker's 16 examples.
    assert found.whole.value == pytest.approx(40)
    assert "exposed communication" not in parts_of(found)
    assert found.reason == (
        "exposed communication is in the remainder: an asynchronous run cannot leave its "
        "reduction out"
    )


def test_a_failed_breakdown_run_leaves_its_parts_out_by_name() -> None:
    """No value is invented for it, and the other parts stay."""
    comparison = broken_down(HOROVOD_MS, HOROVOD)
    failed = {"kind": "failed", "reason": "boom"}
    runs = [
        run.replace(outcome=failed) if run.arm == "horovod ×1 unused at batch 16" else run
        for run in comparison.runs
    ]

    found = breakdown_of(comparison.replace(runs=runs), "horovod ×2")

    assert parts_of(found) == pytest.approx(
        {"compute": 10, "input": 2, "contention": 2.5, "exposed communication": 4, "remainder": 2.5}
    )
    assert "framework tax, used is in the remainder" in found.reason
    assert "no run of 'horovod ×1 unused at batch 16' was timed" in found.reason


def test_without_breakdown_runs_there_are_no_parts() -> None:
    """The whole is known, with advice for the rest."""
    found = breakdown_of(broken_down({"horovod ×2": 21.0}, HOROVOD), "horovod ×2")

    assert found.whole.value == pytest.approx(21)
    assert found.parts == ()
    assert found.reason == "it has no breakdown runs: ringside compare --why"
    with pytest.raises(RefusalError, match="no arm of that name"):
        breakdown_of(comparison_of([HOROVOD], []), "horovod ×3")


def test_a_gap_is_the_difference_of_two_splits() -> None:
    """First minus second, part by part; a remainder beyond its interval is shown."""
    comparison = broken_down(HOROVOD_MS | MIRRORED_MS, HOROVOD, MIRRORED, noise=0.001)

    difference = breakdown_between(comparison, "horovod ×2", "mirrored ×2")
    back = breakdown_between(comparison, "mirrored ×2", "horovod ×2")

    assert difference.whole.value == pytest.approx(9, abs=0.05)
    assert parts_of(difference) == pytest.approx(
        {
            "compute": 0,
            "input": -1,
            "framework tax, started": 0.25,
            "framework tax, used": 1.25,
            "contention": 0,
            "exposed communication": 3,
            "remainder": 5.5,
        },
        abs=0.1,
    )
    assert difference.whole.value == pytest.approx(
        sum(v or 0 for v in parts_of(difference).values())
    )
    assert not difference.remainder.covers(0)
    assert parts_of(back) == pytest.approx(
        {name: -(v or 0) for name, v in parts_of(difference).items()}
    )


def test_a_gap_adds_up_where_the_remainder_is_within_its_noise() -> None:
    """Both arms have the same remainder, so the interval of the difference covers 0."""
    equal = {**MIRRORED_MS, "mirrored ×2": 17.5, "mirrored ×2 without reduction": 16.5}
    equal["mirrored ×2 without input"] = 14.5
    noisy = broken_down(HOROVOD_MS | equal, HOROVOD, MIRRORED, rounds=6, noise=0.01)
    quiet = broken_down(HOROVOD_MS | equal, HOROVOD, MIRRORED, rounds=6)
    few = broken_down(HOROVOD_MS | equal, HOROVOD, MIRRORED, rounds=2)

    assert breakdown_between(noisy, "horovod ×2", "mirrored ×2").remainder.covers(0)
    assert breakdown_between(quiet, "horovod ×2", "mirrored ×2").remainder.covers(0)
    without = breakdown_between(few, "horovod ×2", "mirrored ×2")
    assert not without.remainder.covers(0)
    assert "too few for an interval" in without.remainder.reason
