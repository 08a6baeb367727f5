import dataclasses
import math
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from scipy import stats

from benchmarks.by_hand import wait_for_turn
from benchmarks.starting import start
from benchmarks.tax import Blocks, Pair, Timing, TurnsByHand, holds, plan_by_hand, ratio
from launch.flags import spec_from_flags
from ringside.stats.figure import Figure, Interval
from ringside_core.specs import RefusalError, Surroundings

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("benchmarks/power.py --minutes nope", "'--minutes'"),
        ("benchmarks/by_hand.py --out x --backend nope", "invalid choice: 'nope'"),
    ],
)
def test_wrong_words_start_nothing(words: str, said: str) -> None:
    """They are refused with exit code 2."""
    command = [sys.executable, "-m", *words.replace("/", ".").replace(".py", "", 1).split()]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)

    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


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


BLOCKS = Blocks(number=4, timed=2)


def timing(*block_s: float, slow: float = 9.0) -> Timing:
    """Two epochs of warm-up, then blocks of four epochs of so many seconds, slow at both ends."""
    epochs = (s for block in block_s for s in (slow, 0.5 * block, 1.5 * block, slow))
    epoch_s = (9.0, 5.0, *epochs)
    return Timing(
        epoch_s=epoch_s, steps_per_epoch=10, losses=(1.5,) + (0.3,) * (len(epoch_s) - 1), cores=(0,)
    )


def pair(ringside: Timing, by_hand: Timing, arm: str = "x") -> Pair:
    """A launch in which each side trains 480 examples in an epoch."""
    return Pair(arm, 0, 480, BLOCKS, ringside, by_hand)


def test_a_block_is_the_mean_without_the_epochs_at_its_ends() -> None:
    """The epochs beside a pause and the warm-up do not count; 480 examples in 0.2 s are 2400/s."""
    here = timing(0.4, 0.2, 0.2, 0.2)

    assert len(here.epoch_s) == BLOCKS.epochs
    assert here.block_s(BLOCKS) == pytest.approx([0.4, 0.2, 0.2, 0.2])
    assert pair(here, timing(0.1, 0.1, 0.1, 9.0)).rates == pytest.approx((2400, 4800))


def test_the_ratio_of_a_launch_is_robust_and_that_of_all_has_an_interval() -> None:
    """One block of each launch is disturbed on one side; then SciPy's geometric mean and t."""
    ratios = [1.04, 1.01, 1.03, 0.99]
    pairs = [pair(timing(7, 0.2, 0.2, 0.2), timing(*[0.2 * r] * 4)) for r in ratios]
    logs = [math.log(value) for value in ratios]

    found = ratio(pairs)

    assert found.value == pytest.approx(stats.gmean(ratios))
    low, high = stats.t.interval(0.95, 3, loc=sum(logs) / 4, scale=stats.sem(logs))
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == pytest.approx(
        (math.exp(low), math.exp(high))
    )


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (0.98, 1.02, "yes"),
        (0.979, 1.02, "cannot tell"),
        (0.9, 0.981, "cannot tell"),
        (0.9, 0.979, "no"),
    ],
)
def test_the_limit_is_held_by_the_whole_interval(low: float, high: float, word: str) -> None:
    """Only an interval that lies on one side of 0.98 answers the question."""
    assert holds(Figure(1.0, interval=Interval(low, high), n=5)) == word


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, ""),
        ({"steps_per_epoch": 11}, "steps_per_epoch"),
        ({"cores": (0, 1)}, "cores"),
        ({"epoch_s": (1.0, 1.0, 1.0)}, "epochs"),
        ({"losses": (2.3, 0.3, 0.3, 0.3)}, "loss"),
        ({"losses": (0.9, 0.3, 0.3, 0.3)}, "loss"),
        ({"losses": (1.7, 0.5, 0.1, 0.1)}, ""),
    ],
)
def test_a_pair_that_did_not_do_the_same_is_reported(change: dict, why: str) -> None:
    """Steps, processors, epochs and the loss of the first epoch are compared."""
    here = timing(*[0.2] * 4)

    found = pair(here, dataclasses.replace(here, **change)).difference

    assert why in found
    assert bool(found) == bool(why)


@pytest.mark.timeout(20)
def test_a_script_that_waits_for_its_turn_is_heard(tmp_path: Path) -> None:
    """Its line is the one that the launcher reads; it goes on when its turn comes."""
    spec = spec_from_flags(Surroundings(), backend="serial", global_batch=48, epochs=9)
    turns = TurnsByHand(plan_by_hand(spec, "digits", tmp_path))
    turns.allow(30)
    wait = partial(wait_for_turn, tmp_path, 30, 270, speaks=True)
    waiting = threading.Thread(target=wait, daemon=True)

    waiting.start()
    while not turns.waits(30) and waiting.is_alive():
        time.sleep(0.01)
    (heard,) = turns.progress()
    turns.allow(math.inf)
    waiting.join(5)

    assert (heard.step, heard.total_steps, heard.phase) == (30, 270, "waiting")
    assert not waiting.is_alive()
