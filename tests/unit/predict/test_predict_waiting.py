"""How the steps of one replica foretell what two will wait, against pairs, chance and hand."""

import itertools
import math

import numpy as np
import pytest

from ringside.predict.slowest import half_mean_difference, slower_share
from ringside_core.specs import EpochRecord, Run
from tests.unit.stats.factory import MACHINE, arm_of, epoch, record, run_of, spec_of


def uneven(steps_ms: list[float], each: int = 1, last: int = 0) -> EpochRecord:
    """An epoch with these times for a step, each of so many steps, the last of fewer."""
    counts = [each] * len(steps_ms)
    counts[-1] = last or each
    ends = np.cumsum([0.001 * ms * count for ms, count in zip(steps_ms, counts, strict=True)])
    return epoch(
        float(ends[-1]), step_end_s=tuple(map(float, ends)), steps=sum(counts), steps_per_time=each,
        examples=32 * sum(counts),
    )  # fmt: skip


def run_with(*epochs: EpochRecord, gpus: tuple[str, ...] = ()) -> Run:
    """Of one replica, after a first epoch that does not count."""
    spec = spec_of("horovod", 1)
    machine = MACHINE.replace(gpus=gpus)
    return run_of(arm_of("horovod", 1), [record(spec, [epochs[0], *epochs], machine=machine)])


def test_it_is_what_all_pairs_say() -> None:
    """Half the mean of |x − y|: by how much the larger of two exceeds their mean."""
    values = np.random.default_rng(2).gamma(2.0, size=40)

    pairs = [max(x, y) - (x + y) / 2 for x, y in itertools.combinations(values, 2)]

    assert half_mean_difference(values) == pytest.approx(float(np.mean(pairs)))


def test_of_normal_steps_it_is_what_theory_says() -> None:
    """σ/√π: the expected larger of two normal deviates."""
    values = np.random.default_rng(4).normal(1.0, 0.1, 100_000)

    assert half_mean_difference(values) == pytest.approx(0.1 / math.sqrt(math.pi), rel=0.01)


@pytest.mark.parametrize(("each", "share"), [(1, 0.30), (4, 0.60)])
def test_steps_of_one_epoch(each: int, share: float) -> None:
    """90, 60 and 150 ms differ by 60 on average: 30 beyond a mean of 100; times √4 of four each.

    The first time of an epoch, here five times as long, does not count.
    """
    told = slower_share([run_with(uneven([500, 90, 60, 150], each))])

    assert told == pytest.approx(share)


def test_the_first_of_every_epoch_does_not_count() -> None:
    """Two epochs of 90, 60, 150 ms: their nine pairs across differ by 40 on average."""
    told = slower_share([run_with(uneven([500, 90, 60, 150]), uneven([700, 90, 60, 150]))])

    values = [90, 60, 150, 90, 60, 150]
    pairs = [abs(x - y) for x, y in itertools.combinations(values, 2)]
    assert told == pytest.approx(float(np.mean(pairs)) / 2 / 100)


def test_an_execution_of_fewer_steps_does_not_count() -> None:
    """It would scatter more than the others."""
    told = slower_share([run_with(uneven([500, 90, 110, 90, 110, 900], 4, last=1))])

    assert told == pytest.approx(2 * half_mean_difference(np.array([90.0, 110, 90, 110])) / 100)


def test_runs_are_averaged() -> None:
    """Each relative to its own mean, so that a slow run does not look more scattered."""
    even, scattered = run_with(uneven([9, 50, 50, 50])), run_with(uneven([9, 90, 60, 150]))

    assert slower_share([even, scattered]) == pytest.approx(0.15)


def test_nobody_knows() -> None:
    """One time for each epoch, or a clock that stops when a step is launched."""
    assert math.isinf(slower_share([]))
    assert math.isinf(slower_share([run_with(uneven([500, 90]))]))
    assert math.isinf(slower_share([run_with(uneven([500, 90, 60, 150]), gpus=("A100",))]))
