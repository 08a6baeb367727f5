"""Launches that count, and disturbed ones, from made-up loads."""

import pytest

from ringside.stats.rounds import beside, disturbance, fixed_computation_ms, launches_of
from ringside_core.specs import Block, Load, MachineCounts
from tests.unit.stats.factory import arm_of, comparison_of, simple_run

BUSY = Load(wall_s=10, cores=2, others_cpu_s=4.6, steal_cpu_s=0)
QUIET = Load(wall_s=10, cores=2, others_cpu_s=2.0, steal_cpu_s=2.0)


@pytest.mark.parametrize(
    ("load", "why"),
    [
        (BUSY, "others used 23 % of its cores"),
        (QUIET, ""),  # a tenth is allowed
        (QUIET.replace(steal_cpu_s=4.0), "the host took 20 % of its cores away"),
        (None, ""),
    ],
)
def test_why_a_run_was_disturbed(load: Load | None, why: str) -> None:
    """CPU time of others ÷ (processors · wall time), 4.6 of 20 s; unwatched is undisturbed."""
    assert disturbance(simple_run("serial", 1, 1.0).replace(load=load)) == why


@pytest.mark.parametrize(("launches", "final"), [(4, (1, 3, 4)), (3, (1, 2, 3))])
def test_disturbed_launches_are_left_out_while_enough_remain(
    launches: int, final: tuple[int, ...]
) -> None:
    """The second launch of the final was disturbed; three others are needed."""
    runs = [
        simple_run("serial", 1, 1.0, number=k, position=k).replace(load=BUSY if k == 1 else QUIET)
        for k in range(launches)
    ]

    found = launches_of(comparison_of([arm_of("serial")], runs))

    assert found.final == final
    assert found.disturbed == {2: "serial: others used 23 % of its cores"}
    assert found.left_out == ({2} if len(final) < launches else set())


def test_a_launch_counts_if_every_finalist_completed_in_it() -> None:
    """The screening never does, and neither does one in which an arm is missing."""
    arms = [arm_of("serial"), arm_of("mirrored", 2)]
    runs = [
        simple_run(arm.backend, arm.replicas, 1.0, number=number)
        for number in range(3)
        for arm in arms
        if (number, arm.backend) != (1, "mirrored")
    ]

    found = launches_of(comparison_of(arms, runs))

    assert found.final == (1, 3)
    assert found.finalists == {"serial", "mirrored ×2"}


def watched(others_s: float, beside_s: float) -> Load:
    """A run of 100 s on 2 processors, for which it took 150 s; others beside it and elsewhere."""
    counts = MachineCounts(
        cores=(0, 1),
        busy_s=150 + others_s,
        steal_s=0,
        own_s=150,
        machine_cores=64,
        machine_busy_s=150 + others_s + beside_s,
        machine_steal_s=10,
    )
    return Load.counted([counts], wall_s=100, swapped_bytes=0)


def test_others_beside_the_cores_of_a_run_are_seen() -> None:
    """By hand: 1,270 s of others and 10 s that were stolen, of 64 · 100 s, are 20 %."""
    run = simple_run("serial", 1, 1.0)

    elsewhere = run.replace(load=watched(10, 1260))
    both = run.replace(load=watched(50, 1220))

    assert beside(elsewhere) == pytest.approx(0.2)
    assert disturbance(elsewhere) == ""  # 5 % of its own: the round counts
    assert disturbance(both) == "others used 25 % of its cores, and 20 % of all 64"


def test_the_fixed_computation_of_each_round() -> None:
    """The median over the blocks of all arms; a block without one does not count."""
    seconds = {0: (0.004, 0.006, None), 1: (0.009, 0.005, 0.007)}
    runs = [
        simple_run("serial", 1, 1.0, number=number, position=number).replace(
            blocks=tuple(
                Block(number=k, begun_after=k, ended_after=k + 1, wall_s=1.0, kernel_s=one)
                for k, one in enumerate(times)
            )
        )
        for number, times in seconds.items()
    ]

    found = fixed_computation_ms(comparison_of([arm_of("serial")], runs))

    assert found == pytest.approx({1: 5.0, 2: 7.0})
