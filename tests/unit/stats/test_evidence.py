"""Answers about what was computed: each example once, replicas equal."""

import pytest

from ringside.stats.evidence import (
    Answer,
    examples_once,
    replicas_equal,
    worst,
)
from ringside_core.example_ids import digest_of_each_once
from ringside_core.specs import LedgerDigest, Outcome, Run
from tests.unit.stats.factory import arm_of, each_once, epoch, record, run_of, spec_of


def fed(*ledgers: LedgerDigest | None, examples: int = 20) -> Run:
    """A serial run whose epochs have these ledgers."""
    epochs = [epoch(1.0, examples=examples, ledger=ledger) for ledger in ledgers]
    return run_of(arm_of("serial"), [record(spec_of("serial"), epochs)])


def test_hash_is_splitmix64() -> None:
    """splitmix64 with seed 0 begins with this number; it is id 0's."""
    assert digest_of_each_once(1).id_hash == "e220a8397b1dcdaf"


@pytest.mark.parametrize("count", [1, 2, 1000])
def test_digest_of_each_once(count: int) -> None:
    """NumPy's wrapping sums equal sums of Python's integers."""
    assert digest_of_each_once(count) == each_once(count)


def test_digest_is_the_same_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A data set larger than one chunk is summed over several."""
    monkeypatch.setattr("ringside_core.example_ids.CHUNK", 7)

    assert digest_of_each_once.__wrapped__(100) == each_once(100)


TWICE = LedgerDigest(count=20, id_sum=each_once(20).id_sum, id_hash="0" * 16)


@pytest.mark.parametrize(
    ("runs", "answers"),
    [
        ([fed(each_once(20), each_once(20))], ["yes"]),
        ([fed(each_once(20), None)], ["unknown"]),
        # the same number and sum of ids, and yet not the same ids
        ([fed(each_once(20), TWICE)], ["no"]),
        ([fed(each_once(19), each_once(19))], ["no"]),  # 20 examples were recorded
        ([fed(TWICE, TWICE), fed(each_once(20))], ["no", "yes"]),
        # each of 19 examples once, and others were fed 20: this one drops an example
        ([fed(each_once(19), examples=19), fed(each_once(20))], ["no", "yes"]),
        (
            [
                fed(each_once(20)).replace(
                    records=(), outcome=Outcome(kind="failed", reason="it died")
                )
            ],
            ["unknown"],
        ),
        ([], []),
    ],
)
def test_each_example_once(runs: list[Run], answers: list[Answer]) -> None:
    """Yes only if ids 0…n-1 were fed exactly once in every epoch."""
    assert examples_once(runs) == answers


def test_epochs_of_different_length_are_a_no() -> None:
    """Each epoch alone may be whole, but they are not the same data."""
    epochs = [epoch(1.0, examples=20), epoch(1.0, examples=19)]
    run = run_of(arm_of("serial"), [record(spec_of("serial"), epochs)])

    assert examples_once([run]) == ["no"]


@pytest.mark.parametrize("examples", [(20, 19), (19, 20), (21, 20)])
def test_recorded_number_of_examples_must_be_that_of_the_ledger(examples: tuple[int, int]) -> None:
    """Throughput uses the recorded number, so it must be the true one."""
    epochs = [epoch(1.0, examples=count, ledger=each_once(20)) for count in examples]
    run = run_of(arm_of("serial"), [record(spec_of("serial"), epochs)])

    assert examples_once([run]) == ["no"]


@pytest.mark.parametrize(
    ("before", "after", "answer"), [(12, 8, "yes"), (12, 20, "no"), (0, 8, "no"), (0, 20, "yes")]
)
def test_a_resumed_epoch_counts_what_came_before(before: int, after: int, answer: Answer) -> None:
    """The ledger covers the whole epoch; what each process fed starts at the restart."""
    epochs = [epoch(1.0, examples=after, resumed_examples=before, ledger=each_once(20))]
    run = run_of(arm_of("serial"), [record(spec_of("serial"), epochs)])

    assert examples_once([run]) == [answer]


@pytest.mark.parametrize(
    ("ledger", "answer"),
    [
        (None, "yes"),
        (each_once(50), "yes"),
        (each_once(49), "no"),  # 50 examples were counted
        (each_once(50).replace(id_hash="0" * 16), "no"),
    ],
)
def test_the_validation_is_held_to_its_ledger(ledger: LedgerDigest | None, answer: Answer) -> None:
    """A mistake is found in any epoch."""
    epochs = [epoch(1.0), epoch(1.0, validation_ledger=ledger)]
    run = run_of(arm_of("serial"), [record(spec_of("serial"), epochs)])

    assert examples_once([run]) == [answer]


def test_failed_run_says_nothing_and_sets_no_measure() -> None:
    """It is unknown, and it does not make the others look short."""
    failed = fed(each_once(30), examples=30).replace(outcome={"kind": "failed", "reason": "boom"})

    assert examples_once([failed, fed(each_once(20))]) == ["unknown", "yes"]


ROWS = LedgerDigest(count=20, id_sum=0, id_hash="1" * 16, of_rows=True)
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
        (
            [("serial", [ROWS]), ("parameter_server", [OTHERS]), ("mirrored", [ROWS])],
            ["yes", "asynchronous", "yes"],
        ),
    ],
)
def test_rows_of_a_script_are_held_against_other_runs(
    fed_by: list[tuple[str, list[LedgerDigest | None]]], answers: list[Answer]
) -> None:
    """They have no ids; what each run was fed must be what most were fed."""
    runs = [
        run_of(
            arm_of(name, 2 if name == "parameter_server" else 1),
            [
                record(
                    spec_of(name, 2 if name == "parameter_server" else 1),
                    [epoch(1.0, examples=20, ledger=ledger) for ledger in ledgers],
                )
            ],
        )
        for name, ledgers in fed_by
    ]

    assert examples_once(runs) == answers


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


def test_a_tail_that_every_arm_drops_is_found() -> None:
    """The record knows how many examples the data hold, whatever was fed."""
    spec = spec_of("serial")
    fed = [epoch(1.0)]
    examples = fed[0].examples
    run = run_of(arm_of("serial"), [record(spec, fed, train_examples=examples + 3)])
    whole = run_of(arm_of("serial"), [record(spec, fed, train_examples=examples)])

    assert examples_once([run]) == ["no"]
    assert examples_once([whole]) == ["yes"]
