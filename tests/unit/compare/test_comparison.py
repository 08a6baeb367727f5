"""A comparison as a document: certificates both ways, and files from before there were any."""

import json

import pytest

from measure.summary import summarize
from specs import Comparison, RefusalError
from tests.unit.report.bout import bout


def test_certificates_go_both_ways() -> None:
    """What is written is read again, with all checks and the matrix."""
    comparison = bout()

    again = Comparison.from_json(comparison.to_json())

    assert again == comparison
    ranked = [arm.label for arm in comparison.arms if not (arm.explains or arm.twin_of)]
    assert [one.arm.label for one in again.certificates] == ranked
    assert again.detection is not None


def test_file_of_version_1_is_read_as_never_verified() -> None:
    """Its numbers are all there, and none of them may be ranked."""
    body = json.loads(bout().to_json())
    del body["certificates"], body["detection"]
    body["schema_version"] = 1

    old = Comparison.from_json(json.dumps(body))

    assert (old.certificates, old.detection) == ((), None)
    assert old.runs == bout().runs
    assert {row.not_comparable_because for row in summarize(old).arms} == {
        "it was not verified: run without --no-verify"
    }
    assert json.loads(old.to_json())["schema_version"] == 3


def test_file_of_an_unknown_version_is_refused() -> None:
    """Neither guessed nor migrated."""
    body = {**json.loads(bout().to_json()), "schema_version": 99}

    with pytest.raises(RefusalError, match="schema_version=99"):
        Comparison.from_json(json.dumps(body))
