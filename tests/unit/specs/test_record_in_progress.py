"""The record of a process that still runs: RunRecord, with fields that are assigned one by one."""

import pytest

from ringside_core.readings.machine import machine_facts
from ringside_core.specs import (
    Outcome,
    RecordInProgress,
    RefusalError,
    RunRecord,
    RunSpec,
    Topology,
)

SPEC = RunSpec(
    workload="digits", backend="serial", options={}, topology=Topology(), global_batch=6, epochs=1
)


def begun() -> RecordInProgress:
    """With what every process knows before it works."""
    record = RecordInProgress.begun(SPEC, task="rank-1", rank=1)
    record.machine, record.cores, record.cpu_s = machine_facts(), (0,), 1.5
    return record


def test_what_was_learnt_before_a_failure_is_in_the_record() -> None:
    """It is a RunRecord like any other: the same fields, read back from its JSON."""
    record = begun()

    ended = record.ended(Outcome(kind="failed", error_class="OSError", reason="disk full"))

    assert type(ended) is RunRecord
    assert RunRecord.from_json(ended.to_json()) == ended
    assert (ended.task, ended.rank, ended.role, ended.is_chief) == ("rank-1", 1, "replica", True)
    assert (ended.epochs, ended.startup_s, ended.final_digest) == ((), None, "")


def test_an_unknown_field_is_refused_at_once_and_a_wrong_value_at_the_end() -> None:
    """So a misspelt name never gets lost."""
    record = begun()
    with pytest.raises(ValueError, match="train_example"):
        record.train_example = 20  # type: ignore[attr-defined]
    record.cpu_s = 0.0

    with pytest.raises(RefusalError, match="must have taken CPU time"):
        record.ended(Outcome(kind="completed"))
