"""Answers about what was computed: the same rows, replicas equal."""

import pytest

from ringside.stats.evidence import Answer, replicas_equal, same_rows, worst
from ringside_core.specs import LedgerDigest, Outcome
from tests.unit.stats.factory import arm_of, epoch, record, run_of, spec_of

ROWS = LedgerDigest(rows=20, hash="1" * 16)
OTHERS = ROWS.replace(id_hash="2" * 16)


@pytest.mark.parametrize(
    ("fed_by", "answers"),
    [
        ([("serial", [ROWS, OTHERS])], ["one run"]),
        ([("serial", [ROWS, OTHERS]), ("horovod", [ROWS, OTHERS])], ["yes", "yes"]),
        # nobody knows which of two is right
        ([("serial", [ROWS, OTHERS]), ("horovod", [OTHERS, ROWS])], ["no", "no"]),
        (
            [("serial", [ROWS]), ("horovod", [OTHERS]), ("mirrored", [ROWS])],
            ["yes", "no", "yes"],
        ),
        ([("serial", [ROWS]), ("horovod", [ROWS, None])], ["one run", "unknown"]),
        # under XLA rows are counted only
        ([("serial", [ROWS]), ("mirrored", [ROWS.replace(id_hash="")])], ["one run", "one run"]),
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


def test_an_arm_is_as_good_as_its_worst_run() -> None:
    """One no among yeses is a no."""
    assert worst(["yes", "no", "unknown"]) == "no"
    assert worst(["yes", "unknown"]) == "unknown"
    assert worst([]) == "unknown"
