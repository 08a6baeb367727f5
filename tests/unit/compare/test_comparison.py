"""A comparison as a document: certificates both ways, and files from before there were any."""

import json
from typing import Any

import pytest

from ringside.stats.summary import summarize
from ringside_core.specs import Comparison, RefusalError, Rounds
from tests.unit.report.bout import bout


def test_certificates_go_both_ways() -> None:
    """A written comparison is read again with all checks and the matrix."""
    comparison = bout()

    again = Comparison.from_json(comparison.to_json())

    assert again == comparison
    ranked = [arm.label for arm in comparison.arms if not (arm.for_breakdown or arm.twin_of)]
    assert [one.arm.label for one in again.certificates] == ranked
    assert again.detection is not None


def test_file_of_version_1_is_read_as_never_verified() -> None:
    """All its numbers are there, and none of them may be ranked."""
    body = json.loads(bout().to_json())
    del body["certificates"], body["detection"]
    body["schema_version"] = 1

    old = Comparison.from_json(json.dumps(body))

    assert (old.certificates, old.detection) == ((), None)
    assert old.runs == bout().runs
    assert {row.not_comparable_because for row in summarize(old).arms} == {
        "it was not verified: run without --no-verify"
    }
    assert json.loads(old.to_json())["schema_version"] == Comparison.SCHEMA_VERSION


def test_file_of_version_5_is_read_without_its_hashes() -> None:
    """Its runs and those of its trials carried hashes of each other."""
    body = json.loads(bout().to_json())
    body |= {"schema_version": 5, "last_run": "0" * 64}
    for run in [*body["runs"], *(trial["run"] for trial in body["trials"])]:
        run["previous"] = None

    assert Comparison.from_json(json.dumps(body)) == bout()


def test_file_of_an_unknown_version_is_refused() -> None:
    """It is neither guessed nor migrated."""
    body = {**json.loads(bout().to_json()), "schema_version": 99}

    with pytest.raises(RefusalError, match="schema_version=99"):
        Comparison.from_json(json.dumps(body))


def test_an_interrupted_file_of_version_2_counts_the_rounds_that_there_are() -> None:
    """Its `rounds` were those asked for; now they are those begun."""
    body = json.loads(bout().to_json())
    body["schema_version"] = 2
    body["rounds"] = 9

    old = Comparison.from_json(json.dumps(body))

    assert old.rounds == 1 + max(run.round for run in old.runs)
    assert old.asked == Rounds(least=9, most=9)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rounds": 99}, "rounds=99, and the runs are of"),
        ({"runs": ()}, "and the runs are of 0"),
        ({"arms": ()}, "must have an arm"),
        ({"arms": bout().arms * 2}, "serial( ×1)? twice"),
        ({"arms": bout().arms[:1]}, "must belong to an arm"),
        ({"runs": bout().runs * 2}, "position 0 twice"),
    ],
)
def test_a_comparison_that_cannot_be_is_refused(changes: dict[str, Any], words: str) -> None:
    """Whatever wrote it, nothing is computed from it."""
    with pytest.raises(RefusalError, match=words):
        bout().replace(**changes)


def test_an_arm_runs_once_in_a_round() -> None:
    """At any position."""
    comparison = bout()
    again = comparison.runs[0].replace(position=999)

    with pytest.raises(RefusalError, match="in round 0 twice"):
        comparison.replace(runs=(*comparison.runs, again))


def test_the_most_rounds_are_no_fewer_than_the_least() -> None:
    """Otherwise it could neither go on nor end."""
    with pytest.raises(RefusalError, match="least=4, most=3"):
        Rounds(least=4, most=3)
