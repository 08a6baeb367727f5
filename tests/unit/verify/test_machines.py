"""The machine behind an ssh: what it says, and what is told when it says nothing."""

import os
from pathlib import Path

import pytest

from launch import Placement
from measure.machine import machine_facts
from specs import Host, RefusalError
from verify import machines

# ssh without a network: the last word is the command.
DIRECT_SSH = 'for last; do :; done; echo welcome; exec sh -c "$last"'


@pytest.fixture
def reached_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program by which every host is reached; asked anew in each test."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    machines._remote_facts.cache_clear()
    (tmp_path / "ssh").touch(0o755)
    return tmp_path / "ssh"


def test_a_login_script_that_talks(reached_by: Path) -> None:
    """What it says is not what the machine is."""
    reached_by.write_text(f"#!/bin/sh\n{DIRECT_SSH}\n")

    facts = machines.machine_of(Placement(hosts=(Host(name="b.invalid"),)))

    assert facts.host == machine_facts().host


@pytest.mark.parametrize(
    ("ssh", "words"),
    [
        ("echo 'me@b: Permission denied (publickey).' >&2; exit 255", "it refuses the key"),
        ("exit 0", "exit 0"),
    ],
)
def test_a_machine_that_does_not_say(ssh: str, words: str, reached_by: Path) -> None:
    """The message is that of the preflight: what is wrong, and what to do."""
    reached_by.write_text(f"#!/bin/sh\n{ssh}\n")

    with pytest.raises(RefusalError, match=f"Received: b.invalid: {words}"):
        machines.machine_of(Placement(hosts=(Host(name="b.invalid"),)))
