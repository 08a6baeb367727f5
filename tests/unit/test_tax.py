import dataclasses
import math
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from scipy import stats

from benchmarks.reference import common
from benchmarks.starting import start
from benchmarks.tax import Sample, Tax, epochs_for, holds, ratio
from benchmarks.tax_sides import BLOCKS, Timing, TurnsByHand, plan_by_hand, unlike
from launch.flags import spec_from_flags
from ringside.stats.figure import Figure, Interval
from ringside_core.specs import RefusalError, Surroundings


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


def timing(*block_s: float, steps: int = 10, slow: float = 9.0) -> Timing:
    """Two epochs of warm-up, then blocks of four epochs, slow at both ends."""
    epochs = (one for block in block_s for one in (slow, 0.5 * block, 1.5 * block, slow))
    epoch_s = (9.0, 5.0, *epochs)
    return Timing(
        epoch_s=epoch_s,
        steps_per_epoch=steps,
        losses=(1.5,) + (0.3,) * (len(epoch_s) - 1),
        cores=(0,),
    )


def times(*block_s: float) -> tuple[float, ...]:
    """BLOCKS blocks, the last one again and again."""
    return block_s + (block_s[-1],) * (BLOCKS - len(block_s))


def test_a_step_of_a_block_is_the_mean_without_the_epochs_at_its_ends() -> None:
    """0.2 s an epoch of 10 steps are 20 ms; the epochs at a pause and the warm-up are not in."""
    assert timing(*times(0.4, 0.2)).blocks_ms == pytest.approx([40.0] + [20.0] * (BLOCKS - 1))


def test_the_ratio_of_a_launch_is_robust_and_that_of_all_has_an_interval() -> None:
    """One block of each launch is disturbed on one side; then SciPy's geometric mean and t."""
    ratios = [1.04, 1.01, 1.03, 0.99]
    pairs = [(timing(*times(7.0, 0.2 * one)), timing(*times(0.2))) for one in ratios]
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
    a, b, c = timing(*times(0.1)), timing(*times(0.2)), timing(*times(0.3))
    tax.samples = [
        Sample("x", "by hand", 1, c),
        Sample("x", "ringside", 0, a),
        Sample("y", "by hand", 0, a),
        Sample("x", "ringside", 1, b),
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


def test_epochs_are_enough_for_the_seconds_asked_for() -> None:
    """12 blocks of 5 s in all are 0.42 s each: two epochs of 0.3 s, and two that do not count."""
    sizing = dataclasses.replace(timing(*times(0.3)), epoch_s=(2.0, 1.0, 0.3, 0.3))

    assert epochs_for(5.0, sizing) == 2 + 12 * (2 + 2)


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
    here = timing(*times(0.2))

    found = unlike(here, dataclasses.replace(here, **change))

    assert why in found
    assert bool(found) == bool(why)


@pytest.mark.timeout(20)
def test_a_script_that_waits_for_its_turn_is_heard(tmp_path: Path) -> None:
    """Its line is the one that the launcher reads; it goes on when its turn comes."""
    keras = SimpleNamespace(callbacks=SimpleNamespace(Callback=object))
    job = common.Job("digits", 9, 1, 48, 1, 1, 1, 1, 2, str(tmp_path / "result.json"))
    spec = spec_from_flags(Surroundings(), backend="serial", global_batch=48, epochs=9)
    turns = TurnsByHand(plan_by_hand(spec, "digits", tmp_path))
    turns.allow(30)
    script = common._turns(SimpleNamespace(keras=keras), job, 30, True)
    waiting = threading.Thread(target=script.on_epoch_end, args=(0,), daemon=True)

    waiting.start()
    while not turns.waits(30) and waiting.is_alive():
        time.sleep(0.01)
    (heard,) = turns.progress()
    turns.allow(math.inf)
    waiting.join(5)

    assert (heard.step, heard.total_steps, heard.phase) == (30, 270, "waiting")
    assert not waiting.is_alive()
