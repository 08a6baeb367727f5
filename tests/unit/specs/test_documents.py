"""Documents on disk and in progress: a damaged one is refused with its file and field."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from ringside_core.readings.machine import machine_facts
from ringside_core.specs import (
    Comparison,
    Document,
    Outcome,
    RecordInProgress,
    RefusalError,
    RunRecord,
    Shared,
)
from ringside_core.specs.noun import differences
from tests.unit.report.bout import bout
from tests.unit.stats.factory import (
    arm_of,
    comparison_of,
    epoch,
    record,
    run_of,
    simple_run,
    spec_of,
)

RECORD = "runs.1.records.0"
EPOCH = f"{RECORD}.epochs.2"
Change = Callable[[dict[str, Any]], object]


class Small(Document):
    """A document of version 1."""

    value: int


def two_runs() -> Comparison:
    """Two runs of one arm, the second of which is damaged below."""
    runs = [simple_run("horovod", 2, 1.0, number=k, position=k) for k in (0, 1)]
    return comparison_of([arm_of("horovod", 2)], runs)


def at(body: Any, path: str) -> Any:
    """What stands at a dotted path."""
    for part in filter(None, path.split(".")):
        body = body[int(part)] if part.isdigit() else body[part]
    return body


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (f"{EPOCH}.train_s", -1.5, "greater than 0. Received: -1.5"),
        (f"{EPOCH}.train_s", float("nan"), "finite number. Received: nan"),
        (f"{EPOCH}.train_s", None, "valid number. Received: None"),
        (f"{EPOCH}.step_end_s.1", -0.1, "greater than or equal to 0"),
        (f"{EPOCH}.colour", "red", "Extra inputs"),
        (f"{RECORD}.cpu_s", -1, "greater than or equal to 0"),
        (f"{RECORD}.role", "cook", "'replica', 'coordinator' or 'server'"),
        ("runs.1.wall_s", -1, "greater than or equal to 0"),
        ("asked.budget_s", 0, "greater than 0"),
        ("created_unix_s", 253_402_300_800, "less than 253402300800"),  # the year 10000
        (f"{RECORD}.started_unix_s", 1e300, "less than 253402300800"),
    ],
)
def test_a_wrong_field_is_named_with_its_file(path: str, value: object, words: str) -> None:
    """At any depth."""
    body = json.loads(two_runs().to_json())
    parent, _, field = path.rpartition(".")
    holder = at(body, parent)
    holder[int(field) if field.isdigit() else field] = value

    with pytest.raises(RefusalError) as refused:
        Comparison.from_json(json.dumps(body), origin="runs/a/results.json")

    assert f"Comparison in runs/a/results.json: {path}: " in str(refused.value)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda e: e["step_end_s"].pop(), f"x.json: {EPOCH}: 1 times, 2 steps"),
        (lambda e: e["step_end_s"].reverse(), f"x.json: {EPOCH}: a step that ends earlier"),
        (lambda e: e["step_end_s"].__setitem__(0, 0.0), f"x.json: {RECORD}: epochs.2.step_end_s.0"),
        (lambda e: e["step_end_s"].__setitem__(0, 1.0), "step_end_s.1=1.0 after 1.0"),
        (lambda e: e["step_end_s"].__setitem__(1, 1.1), "epochs.2.train_s=1.0"),
        (lambda e: e.pop("train_s"), f"x.json: {EPOCH}.train_s: Field required. Received: nothing"),
    ],
)
def test_our_own_refusals_name_the_place_too(change: Change, words: str) -> None:
    """A rule over several fields is reported with the noun that breaks it."""
    body = json.loads(two_runs().to_json())
    change(at(body, EPOCH))

    with pytest.raises(RefusalError) as refused:
        Comparison.from_json(json.dumps(body), origin="x.json")

    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (f"{RECORD}.cpu_s", 0, f"x.json: {RECORD}: cpu_s=0.0"),
        ("runs.1.wall_s", 0, "x.json: runs.1: wall_s=0.0"),
        ("runs.1.records", [], "A completed run must have records. Received: x.json: runs.1: none"),
    ],
)
def test_what_completed_took_time_and_left_records(path: str, value: object, words: str) -> None:
    """A failed run may have neither."""
    body = json.loads(two_runs().to_json())
    parent, _, field = path.rpartition(".")
    at(body, parent)[field] = value
    failed = {"kind": "failed", "reason": "it died"}

    with pytest.raises(RefusalError) as refused:
        Comparison.from_json(json.dumps(body), origin="x.json")

    assert words in str(refused.value)
    at(body, parent)["outcome"] = failed
    assert Comparison.from_json(json.dumps(body)).runs[1].arm == "horovod ×2"


@pytest.mark.parametrize("version", [True, 1.0, "1", "2", None, 2, 7, -1])
def test_a_schema_version_is_a_whole_number(version: object) -> None:
    """In Python `true` and 1.0 equal 1; in a schema they do not."""
    body = {"schema_version": version, "value": 3}

    assert Small.from_json('{"schema_version": 1, "value": 3}').value == 3
    with pytest.raises(RefusalError, match=f"schema_version={version!r}"):
        Small.from_json(json.dumps(body))


def test_records_of_another_spec_are_refused_with_the_field() -> None:
    """A run holds only what its own processes recorded."""
    arm, spec = arm_of("serial"), spec_of("serial")
    run = run_of(arm, [record(spec, [epoch(1.0)])])
    alien = record(spec.replace(seed=9), [epoch(1.0)])

    with pytest.raises(RefusalError, match=r"records\.0\.spec\.seed=9, and the run has 1"):
        run.replace(records=(alien,))
    body = json.loads(comparison_of([arm], [run]).to_json())
    body["runs"][0]["records"][0]["spec"]["seed"] = 9
    with pytest.raises(RefusalError, match=r"x\.json: runs\.0: records\.0\.spec\.seed=9"):
        Comparison.from_json(json.dumps(body), origin="x.json")


def test_every_float_survives_the_file() -> None:
    """To the last bit; digests rely on it."""
    generator = random.Random(3)
    ends = sorted(generator.random() * 10.0 ** generator.randint(-9, 5) for _ in range(5000))
    one = record(spec_of("serial"), [epoch(ends[-1], step_end_s=ends)])

    again = RunRecord.from_json(one.to_json())

    assert again == one
    assert json.loads(one.to_json())["epochs"][0]["step_end_s"] == ends


def test_differences_name_every_place() -> None:
    """By dotted paths; lists of different length by their lengths."""
    first = {"a": 1, "b": [1, {"c": 2}], "d": [1]}
    second = {"a": 1, "b": [1, {"c": 3}], "d": [1, 2], "e": None, "f": 0}

    assert list(differences(first, second)) == [
        ("b.1.c", 2, 3),
        ("d", "1 entries", "2 entries"),
        ("f", None, 0),
    ]
    assert list(differences(first, first)) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rounds": 99}, "rounds=99, and the runs are of"),
        ({"runs": ()}, "and the runs are of 0"),
        ({"arms": ()}, "must have an arm"),
        ({"arms": bout().arms * 2}, "serial( ×1)? twice"),
        ({"arms": bout().arms[:1]}, "must belong to an arm"),
        ({"runs": bout().runs * 2}, "position 0 twice"),
        ({"runs": (*bout().runs, bout().runs[0].replace(position=999))}, "in round 1 twice"),
        ({"finalists": ("absent",)}, "finalists.0='absent'"),
    ],
)
def test_a_comparison_that_cannot_be_is_refused(changes: dict[str, Any], words: str) -> None:
    """Whatever wrote it, nothing is computed from it."""
    with pytest.raises(RefusalError, match=words):
        bout().replace(**changes)


def begun() -> RecordInProgress:
    """With what every process knows before it works."""
    record = RecordInProgress.begun(spec_of("serial"), task="rank-1", rank=1)
    record.machine, record.cores, record.cpu_s = machine_facts(), (0,), 1.5
    return record


def test_what_was_learnt_before_a_failure_is_in_the_record() -> None:
    """It is a RunRecord like any other: the same fields, read back from its JSON."""
    record = begun()

    ended = record.ended(Outcome(kind="failed", error_class="OSError", reason="disk full"))

    assert type(ended) is RunRecord
    assert RunRecord.from_json(ended.to_json()) == ended
    assert (ended.task, ended.rank, ended.role, ended.is_chief) == ("rank-1", 1, "replica", False)
    assert (ended.epochs, ended.startup_s, ended.final_digest) == ((), None, "")


def test_an_unknown_field_is_refused_at_once_and_a_wrong_value_at_the_end() -> None:
    """So a misspelt name never gets lost."""
    record = begun()
    with pytest.raises(ValueError, match="gradient_byte"):
        record.gradient_byte = 20  # type: ignore[attr-defined]
    record.cpu_s = 0.0

    with pytest.raises(RefusalError, match="must have taken CPU time"):
        record.ended(Outcome(kind="completed"))


def test_one_of_the_two_batches_is_given() -> None:
    """Both would leave open what stays the same, and none says nothing."""
    shared = Shared.from_run(spec_of("serial", global_batch=16))

    assert (shared.scaling, shared.global_batch_at(1), shared.global_batch_at(4)) == (
        "strong", 16, 16,
    )  # fmt: skip
    for batches in ({"per_replica_batch": 16}, {"global_batch": None}):
        with pytest.raises(RefusalError, match="Either the global batch or"):
            shared.replace(**batches)
