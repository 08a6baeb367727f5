import dataclasses
import math
import random

import pytest
from scipy import stats

from benchmarks.starting import start
from benchmarks.tax import SIDES, Sample, Tax, draw_round, epochs_for, holds, ratio
from benchmarks.tax_sides import Timing, unlike
from ringside.stats.figure import Figure, Interval
from ringside_core.specs import RefusalError


def test_a_refusal_of_a_benchmark_is_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has no traceback; any other error keeps its own."""

    def command(rounds: int = 1) -> None:
        if rounds > 5:
            raise RefusalError("Rounds must be few.", received=rounds)
        raise ValueError(rounds)

    monkeypatch.setattr("sys.argv", ["benchmarks/one.py", "--rounds", "6"])
    with pytest.raises(SystemExit) as ended:
        start(command)
    monkeypatch.setattr("sys.argv", ["benchmarks/one.py"])
    with pytest.raises(ValueError, match="1"):
        start(command)

    assert ended.value.code == 2
    assert capsys.readouterr().err == "one.py: Rounds must be few. Received: 6.\n"


def timing(*epoch_s: float, steps: int = 10) -> Timing:
    """A run of such epochs."""
    return Timing(
        epoch_s=epoch_s,
        steps_per_epoch=steps,
        losses=(1.5,) + (0.3,) * (len(epoch_s) - 1),
        cores=(0,),
    )


def test_a_step_is_the_mean_after_the_first_two_epochs() -> None:
    """(0.2 + 0.4) s over 2 epochs of 10 steps are 30 ms; the slow first two do not count."""
    assert timing(9.0, 5.0, 0.2, 0.4).step_ms == pytest.approx(30.0)


def test_the_ratio_is_a_geometric_mean_with_an_interval_of_the_logarithms() -> None:
    """Against SciPy's own geometric mean and t interval."""
    here, there = [0.31, 0.33, 0.29, 0.40], [0.30, 0.31, 0.30, 0.38]
    pairs = [(timing(1, 1, a), timing(1, 1, b)) for a, b in zip(here, there, strict=True)]
    ratios = [a / b for a, b in zip(here, there, strict=True)]
    logs = [math.log(value) for value in ratios]

    found = ratio(pairs)

    assert found.value == pytest.approx(stats.gmean(ratios))
    low, high = stats.t.interval(0.95, 3, loc=sum(logs) / 4, scale=stats.sem(logs))
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == pytest.approx(
        (math.exp(low), math.exp(high))
    )


def test_a_round_counts_only_with_both_sides() -> None:
    """If the run by hand failed, its partner does not count; pairs are of one round."""
    tax = Tax("", "digits", 1, {})
    a, b, c = timing(1, 1, 0.1), timing(1, 1, 0.2), timing(1, 1, 0.3)
    tax.samples = [
        Sample("x", "by hand", 1, 3, c),
        Sample("x", "ringside", 0, 0, a),
        Sample("y", "by hand", 0, 1, a),
        Sample("x", "ringside", 1, 2, b),
    ]

    assert tax.pairs("x") == [(b, c)]


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (0.98, 1.02, "yes"),
        (0.98, 1.021, "cannot tell"),
        (1.019, 1.1, "cannot tell"),
        (1.021, 1.1, "no"),
    ],
)
def test_the_limit_is_held_by_the_whole_interval(low: float, high: float, word: str) -> None:
    """Only an interval that lies on one side of 1.02 answers the question."""
    assert holds(Figure(1.0, interval=Interval(low, high), n=5)) == word


def test_without_an_interval_nothing_is_said_of_the_limit() -> None:
    """Two rounds give a value without an interval."""
    assert holds(Figure(0.9, n=2)) == "cannot tell"


def test_each_round_holds_both_sides_of_an_arm_next_to_each_other() -> None:
    """Each (arm, side) runs once, in pairs; which side is first is drawn."""
    generator = random.Random(3)
    rounds = [draw_round(["a", "b", "c"], generator) for _ in range(40)]

    for order in rounds:
        assert sorted(order) == sorted((arm, side) for arm in "abc" for side in SIDES)
        assert all(order[i][0] == order[i + 1][0] for i in (0, 2, 4))
    assert {order[0] for order in rounds} == {(arm, side) for arm in "abc" for side in SIDES}


def test_epochs_are_enough_for_the_seconds_asked_for() -> None:
    """With epochs of 0.3 s, 17 of them take 5 s, after two of warm-up."""
    assert epochs_for(5.0, timing(2.0, 1.0, 0.3, 0.3)) == 2 + 17


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, ""),
        ({"steps_per_epoch": 11}, "steps_per_epoch"),
        ({"cores": (0, 1)}, "cores"),
        ({"epoch_s": (1.0, 1.0, 1.0)}, "epochs"),
        ({"losses": (1.5, 0.5, 0.5, 0.5)}, "loss"),
        ({"losses": (1.5, 0.15, 0.3, 0.3)}, "loss"),
        ({"losses": (1.7, 0.35, 0.1, 0.1)}, ""),
    ],
)
def test_a_pair_that_did_not_do_the_same_is_told(change: dict, why: str) -> None:
    """Steps, processors, epochs and the loss after two epochs are compared."""
    here = timing(1.0, 1.0, 0.2, 0.2)

    found = unlike(here, dataclasses.replace(here, **change))

    assert why in found
    assert bool(found) == bool(why)
