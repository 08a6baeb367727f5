"""What all arms share: one batch that means one thing, and results of the schema before it."""

import json

import pytest

from ringside_core.specs import Comparison, RefusalError, Shared
from tests.unit.report.bout import bout
from tests.unit.stats.factory import spec_of


def test_one_of_the_two_batches_is_given() -> None:
    """Both would leave open what stays the same, and none says nothing."""
    shared = Shared.from_run(spec_of("serial", global_batch=16))

    assert (shared.scaling, shared.global_batch_at(1), shared.global_batch_at(4)) == (
        "strong", 16, 16,
    )  # fmt: skip
    for batches in ({"per_replica_batch": 16}, {"global_batch": None}):
        with pytest.raises(RefusalError, match="Either the global batch or"):
            shared.replace(**batches)


def test_a_file_of_schema_5_is_read() -> None:
    """There `shared` had cores and threads as fields of its own, and runs had hashes."""
    new = bout()
    body = json.loads(new.to_json()) | {"last_run": "0" * 64}
    for run in [*body["runs"], *(trial["run"] for trial in body["trials"])]:
        run["previous"] = "0" * 64
    resources = body["shared"].pop("resources")
    body["detection"] = {"arms": ["serial"]}  # what became of deliberate mistakes
    body["shared"] |= {
        "cores_per_replica": resources["cores_per_replica"],
        "intra_op_threads_per_replica": resources["intra_op_threads"],
        "inter_op_threads_per_replica": resources["inter_op_threads"],
    }

    assert Comparison.from_json(json.dumps({**body, "schema_version": 5})) == new
    for schema, words in ((4, "schema_version=4"), (6, "shared.cores_per_replica: Extra inputs")):
        with pytest.raises(RefusalError, match=words):
            Comparison.from_json(json.dumps({**body, "schema_version": schema}))
    with pytest.raises(RefusalError, match=r"x\.json.*shared\.colour: Extra inputs"):
        body["shared"]["colour"] = "red"
        Comparison.from_json(json.dumps({**body, "schema_version": 5}), origin="x.json")
