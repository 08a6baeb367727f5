"""What tests of several files of this folder share."""

from typing import Any

import pytest

from ringside_core.specs import RecordInProgress


@pytest.fixture(name="records")
def records_(monkeypatch: pytest.MonkeyPatch) -> list[RecordInProgress]:
    """The records of the trainings that a test begins."""
    found: list[RecordInProgress] = []
    begun = RecordInProgress.begun

    def kept(*arguments: Any, **named: Any) -> RecordInProgress:
        found.append(begun(*arguments, **named))
        return found[-1]

    monkeypatch.setattr(RecordInProgress, "begun", kept)
    return found
