"""Documents on disk: a damaged one is refused with the file and the whole path of the field."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from ringside_core.specs import (
    Comparison,
    Document,
    RefusalError,
    Run,
    RunRecord,
)
from ringside_core.specs.noun import differences
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
        (f"{EPOCH}.train_s", 0, "greater than 0. Received: 0"),
        (f"{EPOCH}.train_s", -1.5, "greater than 0. Received: -1.5"),
        (f"{EPOCH}.train_s", float("nan"), "finite number. Received: nan"),
        (f"{EPOCH}.train_s", float("inf"), "finite number. Received: inf"),
        (f"{EPOCH}.train_s", None, "valid number. Received: None"),
        (f"{EPOCH}.train_s", "soon", "valid number"),
        (f"{EPOCH}.step_end_s.1", -0.1, "greater than or equal to 0"),
        (f"{EPOCH}.step_end_s.1", float("nan"), "finite number"),
        (f"{EPOCH}.examples", 0, "greater than 0"),
        (f"{EPOCH}.colour", "red", "Extra inputs"),
        (f"{RECORD}.startup_s", 0, "greater than 0"),
        (f"{RECORD}.cpu_s", -1, "greater than or equal to 0"),
        (f"{RECORD}.role", "cook", "'replica', 'coordinator' or 'server'"),
        (f"{RECORD}.machine.cores", 0, "greater than 0"),
        ("runs.1.wall_s", -1, "greater than or equal to 0"),
        ("asked.interval_width", 0, "greater than 0"),
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


@pytest.mark.parametrize("version", [True, 1.0, "1", None, 2, -1])
def test_a_schema_version_is_a_whole_number(version: object) -> None:
    """In Python `true` and 1.0 equal 1; in a schema they do not."""
    body = {"schema_version": version, "value": 3}

    assert Small.from_json('{"schema_version": 1, "value": 3}').value == 3
    with pytest.raises(RefusalError, match=f"schema_version={version!r}"):
        Small.from_json(json.dumps(body))


@pytest.mark.parametrize("part", [0.2, 0.5, 0.999])
def test_a_truncated_file_is_refused_with_the_place(part: float) -> None:
    """For any length."""
    text = two_runs().to_json()

    with pytest.raises(RefusalError, match=r"whole JSON. Received: x.json: .* line \d+ column"):
        Comparison.from_json(text[: int(part * len(text))], origin="x.json")


def test_completions_of_workers_may_be_learned_at_once() -> None:
    """An asynchronous run has no steps that follow each other."""
    spec = spec_of("parameter_server", 2)

    assert record(spec, [epoch(1.0, step_end_s=[0.0, 0.5, 0.5])], role="coordinator").epochs


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


def test_a_long_input_is_cut_in_the_message() -> None:
    """A whole list would hide the message."""
    body = json.loads(two_runs().to_json())
    body["runs"][1]["records"][0]["task"] = list(range(1000))

    with pytest.raises(RefusalError) as refused:
        Comparison.from_json(json.dumps(body), origin="x.json")

    assert len(str(refused.value)) < 400


def test_every_float_survives_the_file() -> None:
    """To the last bit; digests rely on it."""
    generator = random.Random(3)
    ends = sorted(generator.random() * 10.0 ** generator.randint(-9, 5) for _ in range(5000))
    one = record(spec_of("serial"), [epoch(ends[-1], step_end_s=ends)])

    again = RunRecord.from_json(one.to_json())

    assert again == one
    assert json.loads(one.to_json())["epochs"][0]["step_end_s"] == ends


def test_nested_nouns_are_still_checked_when_they_are_built() -> None:
    """A nested noun is built by pydantic alone, but refused with our message."""
    with pytest.raises(RefusalError, match=r"Run: spec\.epochs: .*greater than 0"):
        Run(**{**dict(simple_run("serial", 1, 1.0)), "spec": {**_spec_fields(), "epochs": 0}})


def _spec_fields() -> dict[str, Any]:
    return spec_of("serial").model_dump(mode="json")


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
