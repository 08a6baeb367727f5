"""mllog.txt: lines that MLPerf's own tools would read, with times and values of the records."""

import json
import re
from typing import Any

import pytest

from ringside.report.mllog import render_mllog
from ringside_core.specs import Comparison, Outcome
from tests.unit.stats.factory import (
    arm_of,
    comparison_of,
    epoch,
    record,
    run_of,
    simple_run,
    spec_of,
)

START_MS = 1_700_000_000_000  # started_unix_s of the factory
# A line as mlcommons/logging writes and parses it (mllog.py, mlp_parser/ruleset_610.py).
LINE = re.compile(r":::MLLOG (\{.*\})")
# Of mlperf_logging/mllog/constants.py, read in 2026; what is not there no tool knows.
KEYS = {
    "submission_benchmark",
    "submission_platform",
    "init_start",
    "init_stop",
    "run_start",
    "run_stop",
    "epoch_start",
    "epoch_stop",
    "eval_start",
    "eval_stop",
    "eval_accuracy",
    "eval_samples",
    "train_samples",
    "seed",
    "global_batch_size",
    "gradient_accumulation_steps",
    "opt_learning_rate_warmup_epochs",
}
FIELDS = ["namespace", "time_ms", "event_type", "key", "value", "metadata"]


def bout(*accuracies: float, **changes: Any) -> Comparison:
    """One run: the first step begins at 4.5 s, epochs of 1 s, each with 1 s for the rest."""
    spec = spec_of("serial", seed=7, gradient_accumulation_steps=2)
    epochs = [
        epoch(1.0, end_s=6.5 + 2 * k, accuracy=accuracy) for k, accuracy in enumerate(accuracies)
    ]
    one = record(spec, epochs, **changes)
    return comparison_of([arm_of("serial")], [run_of(arm_of("serial"), [one], position=3)])


def events(comparison: Comparison) -> list[dict[str, Any]]:
    """The lines, parsed; each is one that MLPerf's parser takes."""
    found = []
    for line in render_mllog(comparison).splitlines():
        match = LINE.fullmatch(line)
        assert match is not None, line
        event = json.loads(match[1])
        assert list(event) == FIELDS
        assert isinstance(event["time_ms"], int)
        assert event["event_type"] in ("POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END")
        assert event["key"] in KEYS
        assert {"file", "lineno"} <= event["metadata"].keys()
        found.append(event)
    return found


def value_of(found: list[dict[str, Any]], key: str) -> object:
    """The value of a key that is there once."""
    (event,) = [one for one in found if one["key"] == key]
    return event["value"]


def test_facts_of_a_run() -> None:
    """Under MLPerf's names; the record that they come from is named."""
    found = events(bout(0.5, 0.95))

    facts = {key: value_of(found, key) for key in ("seed", "global_batch_size", "train_samples")}
    assert facts == {"seed": 7, "global_batch_size": 32, "train_samples": 100}
    assert value_of(found, "gradient_accumulation_steps") == 2
    assert value_of(found, "eval_samples") == 50
    assert value_of(found, "submission_benchmark") == "digits"
    assert value_of(found, "submission_platform") == "2 x Example CPU 9000"
    assert {one["namespace"] for one in found} == {"run-003"}
    assert found[0]["metadata"]["file"] == "runs/records/rank-0.json"


def test_times_are_those_of_the_record() -> None:
    """Start-up 5 s with a first step of 0.5 s; epochs of 1 s; validation ends the epoch."""
    found = events(bout(0.5, 0.95))

    told = [
        (one["key"], one["time_ms"] - START_MS, one["metadata"].get("epoch_num"))
        for one in found
        if one["key"].endswith(("_start", "_stop", "accuracy"))
    ]
    assert told == [
        ("init_start", 0, None),
        ("init_stop", 4500, None),
        ("run_start", 4500, None),
        ("epoch_start", 4500, 1),
        ("epoch_stop", 5500, 1),
        ("eval_start", 5500, 1),
        ("eval_accuracy", 6500, 1),
        ("eval_stop", 6500, 1),
        ("epoch_start", 6500, 2),
        ("epoch_stop", 7500, 2),
        ("eval_start", 7500, 2),
        ("eval_accuracy", 8500, 2),
        ("eval_stop", 8500, 2),
        ("run_stop", 8500, None),
    ]
    assert [one["value"] for one in found if one["key"] == "eval_accuracy"] == [0.5, 0.95]


@pytest.mark.parametrize(
    ("comparison", "status", "reason", "epochs"),
    [
        (bout(0.5, 0.95, 0.99), "success", None, 2),
        (bout(0.5, 0.6), "aborted", "the target was not reached", 2),
        (bout(0.5, 0.95, quality_target=None), "aborted", "the workload has no target", 2),
    ],
    ids=["reached", "not reached", "no target"],
)
def test_a_run_ends_when_the_target_is_reached(
    comparison: Comparison, status: str, reason: str | None, epochs: int
) -> None:
    """MLPerf's rule; any other run is aborted, with the reason."""
    found = events(comparison)

    stop = found[-1]
    assert (stop["key"], stop["event_type"]) == ("run_stop", "INTERVAL_END")
    assert stop["metadata"]["status"] == status
    assert stop["metadata"].get("reason") == reason
    assert sum(one["key"] == "epoch_start" for one in found) == epochs


def test_a_run_begins_with_its_launcher() -> None:
    """MLPerf's initialisation is all that comes before the training, so it begins earlier."""
    one = bout(0.5, 0.95)
    run = one.runs[0].replace(started_unix_s=START_MS / 1000 - 4.25)

    (begun,) = [e for e in events(one.replace(runs=(run,))) if e["key"] == "init_start"]

    assert begun["time_ms"] == START_MS - 4250


def test_a_run_that_failed_is_aborted() -> None:
    """Even if it had reached the target; a run that never trained has no epoch."""
    lost = Outcome(kind="failed", reason="power cut")
    arm, spec = arm_of("serial"), spec_of("serial")
    reached = record(spec, [epoch(1.0, accuracy=0.95)], outcome=lost)
    nothing = record(spec, [], outcome=lost, startup_s=None)

    for one in (reached, nothing):
        found = events(comparison_of([arm], [run_of(arm, [one], outcome=lost)]))
        assert found[-1]["metadata"]["status"] == "aborted"
        assert found[-1]["metadata"]["reason"] == "failed(power cut)"
    assert "epoch_start" not in [one["key"] for one in found]


def test_what_has_no_clock_or_no_rank_has_no_line() -> None:
    """A run without its chief's record, and a breakdown run."""
    arm = arm_of("horovod", 2)
    quick = arm.replace(label="quick", group="quick", ablation="no_reduction")
    run = simple_run("horovod", 2, 1.0)
    without = run.replace(records=run.records[1:])
    ablated = run.replace(arm="quick")

    assert render_mllog(comparison_of([arm], [without])) == ""
    assert render_mllog(comparison_of([arm, quick], [ablated])) == ""


def test_a_label_cannot_make_a_line() -> None:
    """Line ends are escaped, as in JSON."""
    arm = arm_of("serial").replace(label="a\n:::MLLOG {}")
    run = simple_run("serial", 1, 1.0).replace(arm=arm.label)

    assert all(one["metadata"]["arm"] == arm.label for one in events(comparison_of([arm], [run])))
