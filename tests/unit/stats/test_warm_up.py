"""Warm-up is found where made-up step times have it, and rarely where they have none."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from ringside.stats.step_times import counted_epochs, settled_after, warm_up
from ringside_core.specs import EpochRecord, Run
from tests.unit.stats.factory import arm_of, epoch, record, run_of, spec_of

Times = NDArray[np.float64]
DATA_SETS = 300


def run_with(times: Times, steps: int, *, times_of: int = 1) -> Run:
    """A serial run of these step times, in epochs of so many steps."""
    spec = spec_of("serial", steps_per_execution=times_of)
    return run_of(arm_of("serial"), [record(spec, epochs_of(times, steps, times_of))])


def epochs_of(times: Times, steps: int, times_of: int = 1) -> Sequence[EpochRecord]:
    """Epochs of so many times, the last of each standing for half as many steps as the others."""
    made = []
    for begin in range(0, len(times), steps):
        ends = np.cumsum(times[begin : begin + steps]).tolist()
        half = times_of // 2
        made.append(
            epoch(
                ends[-1],
                step_end_s=ends,
                steps=times_of * len(ends) - half,
                steps_per_time=times_of,
            )
        )
    return made


def normal(generator: np.random.Generator, n: int) -> Times:
    """5 % of noise around 10 ms."""
    return np.asarray(0.01 * np.exp(0.05 * generator.normal(size=n)))


def skewed(generator: np.random.Generator, n: int) -> Times:
    """Noise of 30 %, to the slow side."""
    return np.asarray(0.01 * np.exp(0.3 * generator.normal(size=n)))


def spiked(generator: np.random.Generator, n: int) -> Times:
    """Noise of 5 %, and 3 % of steps that take 2 to 10 times as long."""
    spikes = np.where(generator.random(n) < 0.03, generator.uniform(2, 10, n), 1.0)
    return np.asarray(normal(generator, n) * spikes)


def correlated(generator: np.random.Generator, n: int) -> Times:
    """Each step like the one before it: AR(1), φ = 0.8."""
    level, levels = 0.0, []
    for shock in 0.05 * generator.normal(size=n):
        level = 0.8 * level + shock
        levels.append(level)
    return 0.01 * np.exp(np.array(levels))


Noise = Callable[[np.random.Generator, int], Times]


@pytest.mark.parametrize("noise", [normal, skewed, spiked, correlated])
@pytest.mark.parametrize("epochs", [3, 10])
def test_noise_alone_rarely_loses_more_than_the_first_epoch(noise: Noise, epochs: int) -> None:
    """Only step 1 is slow: 5 % lose an epoch more, 2 % two more, 5 % never settle."""
    generator = np.random.default_rng(7)
    found = []
    for _ in range(DATA_SETS):
        times = noise(generator, 30 * epochs)
        times[0] = 5.0
        found.append(settled_after(times, first_epoch=30))

    settled = np.array([times for times in found if times is not None])
    # Noise with a memory looks more like a change than independent noise does.
    assert np.sum(settled > 30) <= (0.08 if noise is correlated else 0.05) * DATA_SETS
    assert np.sum(settled > 60) <= 0.02 * DATA_SETS
    assert found.count(None) <= 0.05 * DATA_SETS


@pytest.mark.parametrize(("change", "left_out"), [(5, 1), (40, 2), (75, 3), (130, 5)])
def test_steps_that_were_slower_are_left_out_to_the_end_of_their_epoch(
    change: int, left_out: int
) -> None:
    """30 % slower until a known step: rarely missed, rarely over an epoch too many."""
    generator = np.random.default_rng(11)
    found = []
    for _ in range(DATA_SETS // 3):
        times = normal(generator, 300)
        times[0] = 5.0
        times[:change] *= 1.3
        found.append(warm_up(run_with(times, 30)))

    missed = sum(bool(one.reason) or one.steps < change for one in found)
    assert missed <= 0.05 * len(found)
    assert sum(one.epochs == left_out for one in found) >= 0.75 * len(found)
    assert sum(one.epochs <= left_out + 1 for one in found) >= 0.95 * len(found)


def test_a_run_that_gets_slower_never_settles() -> None:
    """A change in the second half leaves no steady part; all but the first epoch count."""
    times = normal(np.random.default_rng(3), 300)
    times[0] = 5.0
    times[210:] *= 1.3
    run = run_with(times, 30)

    found = warm_up(run)

    assert found.reason
    assert found.epochs == 1
    assert found.reason == "the step times still change in the second half of the run"
    assert len(counted_epochs(run)) == 9


def test_the_error_is_that_of_white_1997() -> None:
    """The warm-up ends at the minimum over d of Σ(z − mean)² ÷ (k − d)², found by loops."""
    times = normal(np.random.default_rng(5), 200)
    times[:40] *= np.linspace(3, 1, 40)
    z = [np.log(np.median(times[k : k + 5])) for k in range(0, 200, 5)]
    errors = []
    for d in range(len(z) // 2 + 1):
        rest = z[d:]
        errors.append(sum((one - np.mean(rest)) ** 2 for one in rest) / len(rest) ** 2)

    assert settled_after(times, first_epoch=10) == 5 * int(np.argmin(errors))


def test_several_steps_of_one_time_are_counted_as_steps() -> None:
    """Ten steps in each time, five in an epoch's last; the change is given in steps."""
    times = np.full(200, 0.1)
    times[:30] *= 2
    times[19::20] /= 2  # half as many steps take half as long

    found = warm_up(run_with(times, 20, times_of=10))

    # 30 times are an epoch of 195 steps and ten times of 10.
    assert (found.steps, found.epochs, found.reason) == (295, 2, "")


@pytest.mark.parametrize(
    ("steps", "epochs", "reason"),
    [(30, 1, "needs at least 2 epochs"), (10, 3, "30 step times: 50 are needed to find warm-up")],
)
def test_short_runs_say_that_nothing_could_be_found(steps: int, epochs: int, reason: str) -> None:
    """Then only the first epoch is left out, because it holds tracing."""
    found = warm_up(run_with(np.full(steps * epochs, 0.01), steps))

    assert (found.steps, found.epochs, found.reason) == (0, 1, reason)


def test_the_slowest_process_decides() -> None:
    """If one of two ranks settles late, the run settles late."""
    spec, generator = spec_of("horovod", 2), np.random.default_rng(4)
    quick, late = normal(generator, 300), normal(generator, 300)
    late[:75] *= 1.5
    ranks = [record(spec, epochs_of(times, 30), k) for k, times in enumerate((quick, late))]

    assert warm_up(run_of(arm_of("horovod", 2), ranks)).epochs == 3
    assert warm_up(run_with(quick, 30)).epochs == 1
