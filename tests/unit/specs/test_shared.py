"""What all arms share: one batch that means one thing, and results of the schema before it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringside_core.specs import Comparison, RefusalError, Rounds, Shared
from tests.unit.stats.factory import spec_of

SCHEMA_4 = Path(__file__).parent / "data" / "comparison_schema_4.json"  # written by commit f417b41


def test_one_of_the_two_batches_is_given() -> None:
    """Both would leave open what stays the same, and none says nothing."""
    shared = Shared.from_run(spec_of("serial", global_batch=16))

    assert (shared.scaling, shared.global_batch_at(1), shared.global_batch_at(4)) == (
        "strong", 16, 16,
    )  # fmt: skip
    for batches in ({"per_replica_batch": 16}, {"global_batch": None}):
        with pytest.raises(RefusalError, match="Either the global batch or"):
            shared.replace(**batches)


def test_weak_scaling_of_schema_4_keeps_each_runs_spec() -> None:
    """`base.global_batch` was each replica's: every run of the file is still its arm's run."""
    comparison = Comparison.from_json(SCHEMA_4.read_text())

    assert comparison.shared is not None
    assert (comparison.scaling, comparison.shared.per_replica_batch) == ("weak", 16)
    assert comparison.shared.global_batch is None
    assert comparison.asked == Rounds(least=1, most=2, interval_width=0.05, budget_s=60.0)
    arms = {arm.label: arm for arm in comparison.arms}
    batches = {run.arm: run.spec.global_batch for run in comparison.runs}
    assert batches == {"serial ×1": 16, "mirrored ×1": 16, "mirrored ×2": 32}
    for run in comparison.runs:
        assert comparison.spec_of(arms[run.arm], run.round) == run.spec
    assert Comparison.from_json(comparison.to_json()) == comparison


def test_strong_scaling_of_schema_4() -> None:
    """The same batch was the global one."""
    body = json.loads(SCHEMA_4.read_text())
    body["scaling"], body["runs"], body["rounds"] = "strong", [], 0

    shared = Comparison.from_json(json.dumps(body)).shared

    assert shared is not None
    assert (shared.global_batch, shared.per_replica_batch) == (16, None)
    assert (shared.cores_per_replica, shared.inter_op_threads_per_replica) == (1, 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda body: body.update(scaling="sideways"), "scaling: Extra inputs"),
        (lambda body: body.update(base="a run"), "shared: "),
        (lambda body: body["base"].update(colour="red"), "shared.colour: Extra inputs"),
        (lambda body: body["base"].pop("global_batch"), "Either the global batch or"),
        (lambda body: body["base"].update(epochs=0), "shared.epochs: "),
        (lambda body: body["asked"].update(precision=-1), "asked.interval_width: "),
    ],
)
def test_a_damaged_file_of_schema_4_is_refused(
    change: Callable[[dict[str, Any]], object], words: str
) -> None:
    """By the name of the field, with the file."""
    body = json.loads(SCHEMA_4.read_text())
    change(body)

    with pytest.raises(RefusalError) as refused:
        Comparison.from_json(json.dumps(body), origin="x.json")

    assert words in str(refused.value)
    assert "x.json" in str(refused.value)
