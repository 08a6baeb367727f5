"""Rows of arms: medians, ranges, efficiencies, evidence; against arithmetic done here."""

import hashlib
import json
import math
import statistics
from typing import Any

import pytest

from ringside.stats.evidence import Answer, replicas_equal, same_rows
from ringside.stats.figure import Figure, Spread, spread_of
from ringside.stats.summary import Efficiency, summarize
from ringside_core.specs import Block, Comparison, LedgerDigest, Outcome, RefusalError, RunSpec
from tests.unit.report.proofs import answered, certificate, recertified, verified
from tests.unit.stats.breakdown_case import twin_and_breakdown_arm
from tests.unit.stats.factory import (
    FAILED,
    MACHINE,
    arm_of,
    comparison_of,
    epoch,
    record,
    run_of,
    simple_run,
    spec_of,
)


def scaling() -> Comparison:
    """Serial, horovod ×1 and ×2, three rounds; throughput is 200 / (2 · train_s)."""
    seconds = {("serial", 1): (1.0, 2.0, 4.0), ("horovod", 1): (2.0, 2.5, 5.0)}
    seconds["horovod", 2] = (1.0, 1.25, 8.0)
    runs = [
        simple_run(backend, replicas, train_s, number=number, position=3 * number + place)
        for place, ((backend, replicas), times) in enumerate(seconds.items())
        for number, train_s in enumerate(times)
    ]
    return verified(comparison_of([arm_of(*key) for key in seconds], runs))


def not_comparable_because(comparison: Comparison) -> dict[str, str]:
    """The reasons by arm; of an arm that is comparable, none."""
    return {row.arm.label: row.not_comparable_because for row in summarize(comparison).arms}


def with_certificate(label: str, **changes: Any) -> Comparison:
    """The same, with one certificate that differs in this."""
    return recertified(scaling(), label, lambda one: one.replace(**changes))


def test_median_range_and_number() -> None:
    """The middle run, not the mean; range and n beside it."""
    spread = spread_of([Figure(5.0), Figure(1.0), Figure(None, "not reached"), Figure(2.0)])

    assert spread == Spread(2.0, "not reached", n=3, of=4, lowest=1.0, highest=5.0)
    assert_equal_spreads(spread_of([]), Spread(None, "no run completed"))
    assert_equal_spreads(spread_of([Figure(None, "x"), Figure(None, "x")]), Spread(None, "x", of=2))


def assert_equal_spreads(one: Spread, other: Spread) -> None:
    """Equal field by field. Since Python 3.13 `==` of data classes tells one NaN from itself."""
    assert repr(one) == repr(other)


def test_strong_scaling_efficiency_names_its_base() -> None:
    """Geometric mean over rounds of X(2) ÷ X(1), halved; the same against serial."""
    summary = summarize(scaling())
    row = summary.arms[2]

    assert summary.serial == "serial"
    log_ratios = [math.log(a / b) for a, b in ((2.0, 1.0), (2.5, 1.25), (5.0, 8.0))]
    against_own = math.exp(statistics.mean(log_ratios)) / 2
    log_ratios = [math.log(a / b) for a, b in ((1.0, 1.0), (2.0, 1.25), (4.0, 8.0))]
    against_serial = math.exp(statistics.mean(log_ratios)) / 2
    assert row.against_group.value == pytest.approx(against_own)
    assert row.against_group.base == "horovod ×1"
    assert row.against_serial.value == pytest.approx(against_serial)
    assert row.against_serial.base == "serial"
    assert summary.arms[1].against_serial.value == pytest.approx(0.32 ** (1 / 3))


def test_missing_base_gives_no_efficiency() -> None:
    """Without an arm at one replica or serial: None, and the reason."""
    arm = arm_of("horovod", 2)

    row = summarize(verified(comparison_of([arm], [simple_run("horovod", 2, 1.0)]))).arms[0]

    assert row.against_group.value is None
    assert row.against_serial.value is None
    assert row.against_serial.reason == "no arm without distribution"


def test_arm_without_a_certificate_is_not_comparable() -> None:
    """It keeps its numbers and loses its efficiency; others keep theirs."""
    comparison = scaling()
    certificates = comparison.certificates[:2]

    rows = summarize(comparison.replace(certificates=certificates)).arms

    assert [row.comparable for row in rows] == [True, True, False]
    assert rows[2].not_comparable_because == "it was not verified: run without --no-verify"
    assert rows[2].spreads["throughput_examples_s"].value == 80
    assert (rows[2].against_group.value, rows[2].against_serial.value) == (None, None)
    assert rows[2].against_serial.reason == "not comparable"
    assert rows[1].against_serial.value == pytest.approx(0.32 ** (1 / 3))


def test_nothing_is_measured_against_a_base_that_is_not_comparable() -> None:
    """Neither serial nor its own arm at one replica."""
    comparison = scaling()

    row = summarize(comparison.replace(certificates=comparison.certificates[2:])).arms[2]

    assert row.comparable
    assert row.against_serial == Efficiency(None, "serial: not comparable", base="serial")
    assert row.against_group == Efficiency(None, "horovod ×1: not comparable", base="horovod ×1")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"checks": (answered("training ledger", passed=False, finding="example 7 is gone"),)},
            "training ledger: example 7 is gone",
        ),
        ({"checks": ()}, "nothing was checked"),
        (
            {"machine": MACHINE.replace(host="bench-2")},
            "it was verified on bench-2, and ran on bench-1",
        ),
        (
            {"machine": MACHINE.replace(packages={**MACHINE.packages, "tensorflow": "2.17.0"})},
            "it was verified with tensorflow 2.17.0, and ran with 2.21.0",
        ),
        ({"machine": MACHINE.replace(memory_bytes=1, kernel="other")}, ""),
    ],
)
def test_certificate_counts_only_for_what_was_run(changes: dict[str, Any], reason: str) -> None:
    """Failed, of another machine or of other software: no."""
    assert not_comparable_because(with_certificate("horovod ×2", **changes)) == {
        "serial": "",
        "horovod ×1": "",
        "horovod ×2": reason,
    }


def test_certificate_of_another_run_does_not_count() -> None:
    """The reason names both runs by the first digits of their hashes."""
    other = spec_of("horovod", 2, epochs=9)

    def digits(spec: RunSpec) -> str:
        text = json.dumps(spec.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    reasons = not_comparable_because(with_certificate("horovod ×2", spec=other))

    expected, ran = digits(other), digits(spec_of("horovod", 2))
    assert expected != ran
    assert reasons["horovod ×2"] == (
        f"its certificate is of the run {expected}, and it ran {ran} in launch 1"
    )


def test_run_on_several_hosts_needs_the_certified_one_among_them() -> None:
    """It names one machine; others must have its processor and packages."""
    spec = spec_of("horovod", 2)
    records = [
        record(spec, [epoch(1.0)] * 2, rank, machine=MACHINE.replace(host=f"bench-{rank + 1}"))
        for rank in (0, 1)
    ]
    comparison = comparison_of([arm_of("horovod", 2)], [run_of(arm_of("horovod", 2), records)])

    def reason(host: str) -> str:
        proof = certificate(arm_of("horovod", 2), spec, machine=MACHINE.replace(host=host))
        return not_comparable_because(comparison.replace(certificates=(proof,)))["horovod ×2"]

    assert reason("bench-2") == ""
    assert reason("bench-3") == "it was verified on bench-3, and ran on bench-1, bench-2"


def test_arm_that_did_other_work_is_not_comparable() -> None:
    """A certificate does not excuse the runs themselves."""
    arms = [arm_of(name) for name in ("serial", "one_device", "horovod")]
    other = LedgerDigest(rows=100, hash="0" * 16)
    fed: list[dict[str, Any]] = [{}, {}, {"ledger": other}]
    runs = [
        run_of(arm, [record(spec_of(arm.backend), [epoch(1.0, **rows)] * 2)])
        for arm, rows in zip(arms, fed, strict=True)
    ]

    reasons = not_comparable_because(verified(comparison_of(arms, runs)))

    assert [reasons[arm.label] for arm in arms] == [
        *("", ""),
        "it was not fed the rows, in the order, that the other arms were",
    ]


def test_only_completed_runs_count_and_the_others_are_named() -> None:
    """A failed run is neither a zero nor forgotten."""
    good = [simple_run("horovod", 1, s, number=k, position=k) for k, s in enumerate((1.0, 2.0))]
    bad = simple_run("horovod", 1, 0.001, number=2, position=2).replace(outcome=FAILED)

    row = summarize(comparison_of([arm_of("horovod")], [*good, bad])).arms[0]

    assert (row.started, row.completed) == (3, 2)
    assert [run.stage for run in row.not_completed] == ["launch 3"]
    spread = row.spreads["throughput_examples_s"]
    assert spread.value == pytest.approx((100 + 50) / 2)
    assert spread.highest == 100


def test_twins_and_breakdown_arms_are_no_rivals() -> None:
    """One pair of two arms; the twin is the noise floor; breakdown arms are not ranked."""
    summary = summarize(twin_and_breakdown_arm())

    pair = summary.pair_of("serial", "horovod ×2")
    assert (pair.word, pair.ratio.n) == ("faster", 6)
    assert summary.pair_of("horovod ×2", "serial").word == "slower"
    assert {one.names for one in summary.pairs if one.word} == {pair.names}
    assert summary.noise_floor is not None
    assert summary.noise_floor.names == {"horovod ×2 again", "horovod ×2"}
    assert summary.noise_floor.word == ""
    assert [row.arm.label for row in summary.breakdown_arms] == ["horovod ×2 no input"]
    assert summary.breakdown_arms[0].not_comparable_because == (
        "it is run for the breakdown and is not ranked"
    )
    assert all(row.comparable for row in summary.arms)
    with pytest.raises(RefusalError, match="have a ratio"):
        summary.pair_of("serial", "horovod ×2 no input")


def test_a_row_is_of_the_final_or_of_the_screening() -> None:
    """The screening has chosen the finalists for their figures there, so these do not count."""
    arms = [arm_of("serial"), arm_of("mirrored", 2), arm_of("horovod", 2)]
    runs = [
        simple_run(arm.backend, arm.replicas, 1.0 if number else 0.1, number=number)
        for number in range(4)
        for arm in (arms if number == 0 else arms[:2])
    ]
    comparison = comparison_of(arms, runs, finalists=("serial", "mirrored ×2"))

    summary = summarize(verified(comparison))

    rates = {row.arm.label: row.mean_throughput for row in summary.arms}
    assert [rates[arm.label].value for arm in arms] == pytest.approx([100.0, 100.0, 1000.0])
    assert [rates[arm.label].n for arm in arms] == [3, 3, 1]
    assert rates["horovod ×2"].reason == "one launch"
    assert [row.used for row in summary.runs] == [False, False, True, *[True] * 6]
    once = summary.pair_of("mirrored ×2", "horovod ×2")  # both in the screening
    assert once.ratio.value == pytest.approx(1.0)
    assert (once.ratio.interval, once.word) == (None, "")
    assert summary.contest is None  # one of the two is not in the final


def test_the_start_of_an_arm_is_that_alone() -> None:
    """In a launch all live arms start at once: 9 s there, 5 s alone; the target 4 s earlier."""
    arm, spec = arm_of("serial"), spec_of("serial")
    blocks = (Block(number=0, begun_after=2, ended_after=4, wall_s=1.0),)
    epochs = [epoch(1.0, end_s=end_s, accuracy=0.95) for end_s in (20.0, 30.0)]
    runs = [
        run_of(arm, [record(spec, epochs, startup_s=9.0)], number=number, blocks=blocks)
        for number in range(4)
    ]
    runs[0] = runs[0].replace(alone_start_s=5.0)

    (row,) = summarize(comparison_of([arm], runs, finalists=("serial",), live=True)).arms

    assert (row.spreads["startup_s"].value, row.spreads["startup_s"].n) == (5.0, 1)
    assert row.spreads["time_to_target_s"].value == 20.0 - 4.0


def test_rows_are_held_against_each_other_as_far_as_all_have_trained() -> None:
    """Live runs go on past the last epoch, and end within one."""
    epochs = [epoch(1.0, ledger=ROWS, steps=2, examples=20) for _ in range(3)]
    part = epoch(0.5, ledger=ROWS.replace(rows=10), step_end_s=(0.5,), examples=10)
    runs = [
        run_of(arm_of(name), [record(spec_of(name), made)])
        for name, made in (("serial", [*epochs, part]), ("horovod", [*epochs[:2], part]))
    ]

    assert same_rows(runs) == ["yes", "yes"]
    assert same_rows(
        [runs[0], run_of(arm_of("horovod"), [record(spec_of("horovod"), [part])])]
    ) == ["unknown", "unknown"]


def test_what_leaves_within_its_first_epoch_is_held_against_what_leaves_with_it() -> None:
    """The others of a live launch go on."""
    part = epoch(0.5, ledger=ROWS.replace(rows=10), step_end_s=(0.5,), examples=10)
    turn = Block(number=0, begun_after=0, ended_after=1, wall_s=1.0)
    whole = [epoch(1.0, ledger=ROWS, steps=2, examples=20) for _ in range(2)]
    runs = [
        run_of(arm_of(name), [record(spec_of(name), made)]).replace(blocks=(turn,))
        for name, made in (
            ("serial", whole), ("mirrored", whole), ("one_device", [part]), ("horovod", [part])
        )
    ]  # fmt: skip

    assert same_rows(runs) == ["yes"] * 4
    assert same_rows(runs[:3]) == ["yes", "yes", "one run"]


ROWS = LedgerDigest(rows=20, hash="1" * 16)
OTHERS = ROWS.replace(hash="2" * 16)


@pytest.mark.parametrize(
    ("fed_by", "answers"),
    [
        ([("serial", [ROWS, OTHERS])], ["one run"]),
        ([("serial", [ROWS, OTHERS]), ("horovod", [ROWS, OTHERS])], ["yes", "yes"]),
        # which of two is right is not known
        ([("serial", [ROWS, OTHERS]), ("horovod", [OTHERS, ROWS])], ["no", "no"]),
        ([("serial", [ROWS]), ("horovod", [OTHERS]), ("mirrored", [ROWS])], ["yes", "no", "yes"]),
        ([("serial", [ROWS]), ("horovod", [ROWS, None])], ["one run", "unknown"]),
        # under XLA rows are counted only
        ([("serial", [ROWS]), ("mirrored", [ROWS.replace(hash="")])], ["yes", "yes"]),
        ([("serial", [ROWS]), ("mirrored", [ROWS.replace(rows=19, hash="")])], ["no", "no"]),
        (
            [("serial", [ROWS]), ("parameter_server", [OTHERS]), ("mirrored", [ROWS])],
            ["yes", "asynchronous", "yes"],
        ),
    ],
)
def test_rows_are_held_against_other_runs(
    fed_by: list[tuple[str, list[LedgerDigest | None]]], answers: list[Answer]
) -> None:
    """What each run was fed must be what most were fed, in the same order."""
    runs = []
    for name, ledgers in fed_by:
        replicas = 2 if name == "parameter_server" else 1
        epochs = [epoch(1.0, examples=20, ledger=ledger) for ledger in ledgers]
        spec = spec_of(name, replicas)
        runs.append(run_of(arm_of(name, replicas), [record(spec, epochs)]))

    assert same_rows(runs) == answers


def test_a_failed_run_is_unknown_and_no_measure() -> None:
    """Nor is one without an epoch."""
    runs = [
        run_of(arm_of("serial"), [record(spec_of("serial"), epochs)])
        for epochs in ([epoch(1.0, ledger=OTHERS)], [], [epoch(1.0, ledger=ROWS)])
    ]
    runs[0] = runs[0].replace(outcome=Outcome(kind="failed", reason="it died"))

    assert same_rows(runs) == ["unknown", "unknown", "one run"]


@pytest.mark.parametrize(
    ("backend", "replicas", "deviations", "answer"),
    [
        ("horovod", 2, [0.0, 0.0], "yes"),
        ("horovod", 2, [0.0, 1e-9], "no"),
        ("horovod", 2, [0.0, None], "unknown"),
        ("horovod", 2, [0.0], "unknown"),
        ("horovod", 1, [0.0], "one replica"),
        ("mirrored", 2, [0.0], "yes"),
        ("mirrored", 2, [0.5], "no"),
        ("parameter_server", 2, [None, None], "asynchronous"),
    ],
)
def test_replicas_equal(
    backend: str, replicas: int, deviations: list[float | None], answer: Answer
) -> None:
    """Every process of a synchronous run must report that no replica differs."""
    spec = spec_of(backend, replicas)
    records = [
        record(spec, [epoch(1.0)], rank, replica_deviation=deviation)
        for rank, deviation in enumerate(deviations)
    ]

    assert replicas_equal(run_of(arm_of(backend, replicas), records)) == answer
