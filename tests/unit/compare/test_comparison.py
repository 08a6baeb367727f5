"""A comparison as a document."""

import json
from typing import Any

import pytest

from ringside_core.specs import Comparison, RefusalError, Rounds
from tests.unit.report.bout import bout


def test_certificates_go_both_ways() -> None:
    """A written comparison is read again with all checks."""
    comparison = bout()

    again = Comparison.from_json(comparison.to_json())

    assert again == comparison
    ranked = [arm.label for arm in comparison.arms if not (arm.for_breakdown or arm.twin_of)]
    assert [one.arm.label for one in again.certificates] == ranked


def test_file_of_an_unknown_version_is_refused() -> None:
    """It is neither guessed nor migrated."""
    body = {**json.loads(bout().to_json()), "schema_version": 99}

    with pytest.raises(RefusalError, match="schema_version=99"):
        Comparison.from_json(json.dumps(body))


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
