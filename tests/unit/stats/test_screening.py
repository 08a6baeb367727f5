"""The screening: who takes part in the final, and who takes a place that becomes free."""

import numpy as np
import pytest

from ringside.stats.final import Sample
from ringside.stats.screening import (
    LEAST_SCATTER,
    Once,
    all_finalists,
    contenders,
    differ,
    finalists,
    next_in_line,
    ratio_once,
    scatter,
)
from ringside_core.specs import Arm, Asked, Settings
from tests.unit.stats.factory import arm_of, comparison_of

SERIAL, ONE, OTHER = arm_of("serial"), arm_of("mirrored", 2), arm_of("multi_worker_mirrored", 2)
THIRD, HOROVOD, SMALL = arm_of("central_storage", 2), arm_of("horovod", 2), arm_of("horovod", 1)
ARMS = (SERIAL, ONE, OTHER, THIRD, HOROVOD, SMALL)
RATES = {ONE: 100.0, OTHER: 101.0, THIRD: 102.0, HOROVOD: 60.0, SMALL: 200.0, SERIAL: 50.0}


def samples_of(noise: float, rates: dict[Arm, float] | None = None) -> Once:
    """The screening of these arms, five passes; the logs of blocks scatter by so much."""
    random = np.random.default_rng(1)
    return {
        arm.label: Sample(rate, dict(enumerate((rate * random.lognormal(0, noise, 5)).tolist())))
        for arm, rate in (rates or RATES).items()
    }


def chosen(noise: float, rates: dict[Arm, float] | None = None) -> list[str]:
    """Labels of the contenders."""
    made = rates or RATES
    return [arm.label for arm in contenders(list(made), samples_of(noise, made))]


def test_contenders_are_the_fastest_of_each_family_and_who_is_near() -> None:
    """Of the largest size, two a family at most, fastest first; serial is none."""
    assert chosen(0.05) == ["central_storage ×2", "multi_worker_mirrored ×2", "horovod ×2"]


def test_an_arm_slower_than_the_fastest_stays_out() -> None:
    """The passes are steady: one per cent is seen."""
    assert chosen(0.0005) == ["central_storage ×2", "horovod ×2"]


def test_a_family_alone_sends_its_two_fastest() -> None:
    """However far apart they are."""
    assert chosen(0.0005, {ONE: 100.0, OTHER: 50.0, SERIAL: 90.0}) == [
        "mirrored ×2",
        "multi_worker_mirrored ×2",
    ]


def test_runs_that_were_not_live_are_near_within_ten_per_cent() -> None:
    """A single run says no more."""
    alone = {arm.label: Sample(rate) for arm, rate in RATES.items()}
    far = {**alone, ONE.label: Sample(90.0)}

    assert not differ(alone, ONE.label, THIRD.label)
    assert differ(far, ONE.label, THIRD.label)
    assert differ(alone, ONE.label, "missing")


def test_the_next_one_is_of_the_same_family_and_size() -> None:
    """The fastest that was not in the final yet; of Horovod none is left."""
    timed = {arm.label: Sample(rate) for arm, rate in RATES.items()}
    taken = {THIRD.label, OTHER.label, HOROVOD.label}

    assert next_in_line(THIRD, ARMS, timed, taken) == ONE
    assert next_in_line(HOROVOD, ARMS, timed, taken) is None


def test_the_final_has_serial_its_twin_and_what_breaks_contenders_down() -> None:
    """Or all arms, if it is asked for."""
    twin = SERIAL.replace(label="serial again", group="serial again", twin_of="serial")
    reduced = HOROVOD.replace(label="horovod ×2 without reduction", ablation="no_reduction")
    other = OTHER.replace(
        label="multi_worker_mirrored ×2 without reduction", ablation="no_reduction"
    )
    comparison = comparison_of([*ARMS, twin, reduced, other], [])

    found = finalists(comparison, [ONE, HOROVOD])

    assert found == (
        "serial",
        "mirrored ×2",
        "horovod ×2",
        "serial again",
        "horovod ×2 without reduction",
    )
    everyone = comparison.replace(asked=Asked(all_arms=True))
    assert finalists(everyone, [ONE]) == tuple(arm.label for arm in comparison.arms)


@pytest.mark.parametrize(
    ("arms", "lost", "all_of_them"),
    [
        ([SERIAL, ONE, HOROVOD], [], True),
        ([SERIAL, ONE, OTHER], [], True),  # a family alone sends two
        ([SERIAL, ONE, OTHER, HOROVOD], [], False),  # one of two is left out if it is far behind
        ([SERIAL, ONE, OTHER, HOROVOD], [OTHER], True),
        ([SERIAL, ONE, HOROVOD, SMALL], [], False),  # a row of the screening alone
    ],
)
def test_where_no_speed_can_change_the_final(
    arms: list[Arm], lost: list[Arm], all_of_them: bool
) -> None:
    """Then nothing is to be chosen; but an arm that may not be ranked is in no final."""
    comparison, labels = comparison_of(arms, []), [arm.label for arm in lost]

    assert all_finalists(comparison, arms, labels) is all_of_them
    assert not all_finalists(comparison, [arm for arm in arms if arm != arms[-1]], [])
    every = comparison.replace(asked=Asked(all_arms=True))
    assert all_finalists(every, arms, labels)


def test_scatter_is_that_of_the_noisiest_pair() -> None:
    """From pass to pass: √2 times that of the blocks of an arm; of one run alone, 5 %."""
    random = np.random.default_rng(3)
    blocks = {
        arm.label: Sample(1.0, dict(enumerate(random.lognormal(0, noise, 400).tolist())))
        for arm, noise in ((ONE, 0.02), (HOROVOD, 0.10), (OTHER, 0.02))
    }

    assert scatter(blocks, [ONE, HOROVOD, OTHER]) == pytest.approx(0.10, rel=0.2)
    assert scatter({ONE.label: Sample(1.0)}, [ONE]) == pytest.approx(0.05)
    same = {arm.label: Sample(1.0, dict.fromkeys(range(5), 1.0)) for arm in (ONE, HOROVOD)}
    assert scatter(same, [ONE, HOROVOD]) == LEAST_SCATTER  # five passes may be near by chance


def test_a_ratio_of_one_launch_has_no_interval() -> None:
    """The faster one comes first; of too few common passes there is none."""
    steady = samples_of(0.0005)

    found = ratio_once(steady, "serial", HOROVOD.label)

    assert (found.first, found.ratio.reason, found.ratio.n) == ("horovod ×2", "one launch", 1)
    assert found.ratio.value == pytest.approx(1.2, rel=0.01)
    few = {**steady, "serial": Sample(1.0, {0: 1.0, 1: 1.0})}
    assert ratio_once(few, "serial", HOROVOD.label).ratio.value is None


def test_settings_do_not_make_a_family() -> None:
    """Two arms of one backend with other settings are of one family."""
    ten = ONE.replace(label="ten ×2", group="ten", settings=Settings(steps_per_execution=10))

    assert chosen(0.05, {ONE: 100.0, ten: 101.0, OTHER: 99.0, HOROVOD: 50.0}) == [
        "ten ×2",
        "mirrored ×2",
        "horovod ×2",
    ]
