"""The machine behind an ssh: what it says, and what is told when it says nothing."""

import dataclasses
from pathlib import Path

import pytest

from launch import Site
from launch.remote import host_checks
from ringside_core.specs import Host, Placement, RefusalError
from tests.unit.launch.reached import DIRECT, reached_by


@pytest.fixture(autouse=True)
def _asked_anew() -> None:
    host_checks._remote_facts.cache_clear()


@pytest.mark.parametrize("said", ["hello", "{}", ""])
def test_a_machine_that_says_something_else(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names it, and shows what it said."""
    reached_by(DIRECT, tmp_path, monkeypatch)
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho '{said}'\n")
    python.chmod(0o755)
    here = dataclasses.replace(Site.here(), python=str(python))
    monkeypatch.setattr(Site, "here", lambda: here)

    with pytest.raises(RefusalError) as refused:
        host_checks.machine_of(Placement(hosts=(Host(name="b.invalid"),)))

    assert str(refused.value.received).startswith(f"b.invalid: {python} there says {said!r}, ")
