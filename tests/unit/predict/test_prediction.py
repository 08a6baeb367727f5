"""Predictions from made-up documents: intervals that hold the truth, refusals, the command."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.stats import expon, norm

import ringside.cli.main
from ringside.predict.prediction import Prediction, message_bound_s, predict, relative_steps
from ringside.stats.figure import Figure
from ringside_core.specs import Comparison, EpochRecord, RefusalError, Run, write_whole
from tests.unit.predict import measured as made
from tests.unit.report.proofs import certificate, failed
from tests.unit.stats.factory import (
    MACHINE,
    TAKEN,
    arm_of,
    comparison_of,
    epoch,
    link,
    live_run,
    record,
    run_of,
    spec_of,
)

Floats = NDArray[np.float64]
PAIR_S = made.ring_s(2, made.GRADIENT)


def test_by_hand() -> None:
    """Equal steps: T(4) = C + A(4) + r, with r = 10 ms, geometric means of two rounds."""
    comparison = made.comparison({1: 0.1, 2: 0.11 + PAIR_S})

    (stack,), reasons = predict(comparison, made.communication(), [1, 2, 4])

    mean = math.sqrt(1.01)
    known = (0.11 + PAIR_S) * mean
    rest = known - 0.1 * mean - PAIR_S
    expected = [0.1 * mean, known, 0.1 * mean + made.ring_s(4, made.GRADIENT) + rest]
    assert not reasons
    assert [step.value for step in stack.steps_ms.values()] == pytest.approx(
        [1000 * seconds for seconds in expected]
    )
    assert stack.efficiency(1000 * expected[2]) == pytest.approx(expected[0] / expected[2])
    assert stack.known_replicas == 2
    assert stack.steps_seen == 2 * 29
    assert stack.unseen_share(4) == pytest.approx(4 / 62)


def test_the_largest_size_that_was_measured_is_extrapolated() -> None:
    """What four replicas took decides, not what two did."""
    of = {two: made.comparison({1: 0.1, 2: two, 4: 0.2}) for two in (0.15, 0.3)}

    steps = [predict(found, made.communication(), [4, 8])[0][0].steps_ms for found in of.values()]

    assert steps[0] == steps[1]
    assert steps[0][4].value == pytest.approx(200 * math.sqrt(1.01))


def test_intervals_widen_with_the_distance() -> None:
    """And a step never takes less among more replicas."""
    comparison = made.comparison({1: 0.1, 2: 0.15})

    (stack,), _ = predict(comparison, made.communication(), [2**k for k in range(13)])

    steps = list(stack.steps_ms.values())
    values = [step.value or math.nan for step in steps]
    widths = [math.log(s.interval.high / s.interval.low) for s in steps if s.interval]
    assert values == sorted(values)
    assert len(widths) == 13
    assert widths[2] < widths[6] < widths[12]


def holds(step_ms: Figure, truth_ms: float) -> bool:
    """Whether the interval holds it."""
    assert step_ms.interval is not None
    return step_ms.interval.low <= truth_ms <= step_ms.interval.high


# Experiments that are played step by step: the usual steps, and the share of those 1 longer

PLAYED = {
    "stalls": (norm(1, 0.01), 0.001),
    "normal": (norm(1, 0.01), 0.0),
    "exponential": (expon(0.95, 0.05), 0.0),
}


def experiment(kind: str, random: np.random.Generator, scatter: float = 0.0) -> Comparison:
    """Three rounds of 2,000 steps of 0.1 s; the two replicas of a pair wait for each other."""
    usual, rare = PLAYED[kind]

    def played(size: int) -> Floats:
        steps = usual.rvs((2000, size), random) + (random.random((2000, size)) < rare)
        longest: Floats = 0.1 * steps.max(axis=1) + (size - 1) * PAIR_S
        return longest * math.exp(random.normal(0, scatter))

    runs = [made.run(size, played(size), number) for number in range(3) for size in (1, 2)]
    arms = [arm_of("horovod", size) for size in (1, 2)]
    return comparison_of(arms, runs, shared=made.SHARED, hosts=made.HOSTS)


def longest_ms(kind: str, ranks: int) -> float:
    """The longest of N steps of 0.1 s, ∫ 1 − F(x)^N."""
    usual, rare = PLAYED[kind]

    def above(x: float) -> float:
        below = (1 - rare) * usual.cdf(x) + rare * usual.cdf(x - 1)
        return float(1 - below**ranks)

    longest, _ = quad(above, 0, 4, limit=2000, points=[0.95, 1, 1.05, 2])
    return 100 * float(longest)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", PLAYED)
def test_intervals_hold_the_truth(kind: str) -> None:
    """In 95 of 100 experiments or more, up to two thirds of the number of steps that were seen.

    Runs scatter by 1 %. All-reduces differ from their model by 1 % for each doubling of the ranks.
    """
    random = np.random.default_rng(3)
    held = dict.fromkeys((8, 64, 512, 4096), 0)
    longest = {size: longest_ms(kind, size) for size in held}
    for _ in range(100):
        played = experiment(kind, random, scatter=0.01)
        (stack,), _ = predict(played, made.communication(), list(held))
        for size, step_ms in stack.steps_ms.items():
            wrong = math.exp(random.normal(0, 0.01 * math.sqrt(math.log2(size / 2))))
            truth = longest[size] + 1000 * made.ring_s(size, made.GRADIENT) * wrong
            held[size] += holds(step_ms, truth)

    assert min(held.values()) >= 95, held


# What is read from records


def run_with(*epochs: EpochRecord, gpus: tuple[str, ...] = ()) -> Run:
    """Of one replica, after a first epoch that does not count."""
    spec = spec_of("horovod", 1)
    machine = MACHINE.replace(gpus=gpus)
    return run_of(arm_of("horovod", 1), [record(spec, [epochs[0], *epochs], machine=machine)])


def uneven(steps_ms: list[float], each: int = 1, last: int = 0) -> EpochRecord:
    """An epoch with these times for a step, each of so many steps, the last of fewer."""
    counts = [each] * (len(steps_ms) - 1) + [last or each]
    ends = np.cumsum([0.001 * ms * count for ms, count in zip(steps_ms, counts, strict=True)])
    return epoch(
        float(ends[-1]), step_end_s=tuple(ends.tolist()), steps=sum(counts), steps_per_time=each,
        examples=32 * sum(counts),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("made_epoch", "shares"),
    [
        (uneven([500, 90, 60, 150]), [0.9, 0.6, 1.5]),
        (uneven([500, 90, 60, 150], 4), [0.8, 0.2, 2.0]),  # √4 times as far from 1
        (uneven([500, 90, 60, 150, 900], 4, last=1), [0.8, 0.2, 2.0]),
    ],
)
def test_steps_are_relative_to_their_run(made_epoch: EpochRecord, shares: list[float]) -> None:
    """The first time of an epoch does not count, nor one of fewer steps."""
    assert relative_steps(run_with(made_epoch)) == pytest.approx(shares)


def test_steps_of_a_live_run_are_those_that_count() -> None:
    """Update k takes k ms. Of each block the first 3 do not count."""
    counted = np.array([*range(24, 41), *range(44, 51), *range(54, 91)])

    assert relative_steps(live_run()) == pytest.approx(counted / counted.mean())


def test_a_message_takes_no_longer_than_the_quickest_stack_allows() -> None:
    """8 µs among four ranks are two rounds at least: 4 µs."""
    slow = made.communication(ranks=4)
    (stack,) = slow.stacks
    seconds = ((8e-6, 7e-6, 6e-6, 5e-6), (9e-6,) * 4)
    quick = stack.replace(timings=(stack.timings[0].replace(seconds=seconds),))

    assert message_bound_s(slow.replace(stacks=(stack, quick))) == pytest.approx(4e-6)


# Refusals

KNOWN = {1: 0.1, 2: 0.2}
GPU = MACHINE.replace(gpus=("H100",))
SLOW = link("left", "right", 500)
FAILED = failed(certificate(arm_of("horovod", 2), hosts=made.HOSTS))


@pytest.mark.parametrize(
    ("comparison", "communication", "said"),
    [
        (made.comparison(KNOWN, "mirrored"), made.communication(), "between processes"),
        (made.comparison(KNOWN, certificates=(FAILED,)), made.communication(), "compute the same"),
        (made.comparison({1: 0.1}), made.communication(), "runs of 1 replicas"),
        (made.comparison(KNOWN, steps=10), made.communication(), "20 steps or more"),
        (made.comparison(KNOWN, machine=GPU), made.communication(), "Only steps on processors"),
        (made.comparison(KNOWN, load=TAKEN), made.communication(), "on a quiet machine"),
        (made.comparison(KNOWN, hosts=()), made.communication(), "between the same hosts"),
        (made.comparison(KNOWN), made.communication(hosts=("left", "far")), "the same hosts"),
        (made.comparison(KNOWN, links=(SLOW,)), made.communication(), "the same link"),
        (made.comparison(KNOWN, "multi_worker_mirrored"), made.communication(), "the same stack"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_was_not_measured_is_refused(
    comparison: Comparison, communication: Any, said: str
) -> None:
    """With what is missing."""
    with pytest.raises(RefusalError, match=said):
        predict(comparison, communication, [4])


# The command


@pytest.fixture
def ringside_predict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs the command on made-up documents with more flags, and returns its exit code."""
    documents = {"results.json": made.comparison(KNOWN), "communication.json": made.communication()}
    for file, document in documents.items():
        write_whole(tmp_path / file, document.to_json())

    def run(*flags: str) -> Any:
        named = [str(tmp_path), "--communication", str(tmp_path), "--output", str(tmp_path)]
        monkeypatch.setattr("sys.argv", ["ringside", "predict", *named, *flags])
        with pytest.raises(SystemExit) as ended:
            ringside.cli.main.main()
        return ended.value.code

    return run


def test_the_command_prints_a_table_and_writes_a_document(
    ringside_predict: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The measured steps, the predicted ones, and the same numbers in the file."""
    code = ringside_predict("--replicas", "64,4", "--name", "new")

    printed = capsys.readouterr().out
    found = Prediction.from_json((tmp_path / "new" / "prediction.json").read_text())
    (stack,), _ = predict(made.comparison(KNOWN), made.communication(), [4, 64])
    assert not code
    assert found.stacks == (stack,)
    assert "100 (measured)" in printed
    assert f"{stack.steps_ms[4].value:.0f} [" in printed


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--replicas", "0"], "--replicas must be whole numbers from 2 to 4,096"),
        (["--replicas", "4,4097"], "--replicas must be whole numbers from 2 to 4,096"),
        (["--replicas", "2,4"], "--replicas must be more than were run"),
        (["--communication", "none"], "--communication"),
    ],
)
def test_wrong_flags_are_refused(
    flags: list[str],
    said: str,
    ringside_predict: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By one line, with exit code 2."""
    assert ringside_predict(*flags) == 2
    printed = capsys.readouterr().err
    assert said in printed
    assert "results.json" not in printed
