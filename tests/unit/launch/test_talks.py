"""Talks with commands on many hosts: line by line, side by side, and while others are started."""

from collections.abc import Generator
from pathlib import Path

import pytest

from launch.remote.ssh import NoAnswer, talk_to_all
from tests.unit.launch.reached import DIRECT, reached_by

LIMIT_S = 20.0  # for those that answer at once, on a busy machine
LONG = 300_000  # bytes: more than a pipe holds, in both directions


def dialogue() -> Generator[bytes, str, str]:
    """Says a short word and a long one; the command says how long each is, and the long one."""
    if (yield b"") != "ready\n":
        raise ValueError
    if int((yield b"yes\n")) != 3:
        raise ValueError
    return (yield b"x" * LONG + b"\n")


TELL = 'echo ready; read -r word; echo ${#word}; read -r word; echo "$word"; sleep 3600'


@pytest.fixture(autouse=True)
def _direct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reached_by(DIRECT, tmp_path, monkeypatch)


def test_long_lines() -> None:
    """Neither side waits for the other, and the host's answer is complete."""
    answers = talk_to_all({"a": ("sh", "-c", TELL)}, dialogue, limit_s=LIMIT_S)

    assert answers == {"a": "x" * LONG + "\n"}


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("echo hello; cat", "'hello'"),
        (f"echo hello; {TELL}", "'hello'"),
        ("echo ready; echo three; cat", "'three'"),
        ("echo ready; echo; cat", "''"),
        ("head -c 300000 /dev/zero | tr '\\0' x; echo; cat", repr("x" * 80)),
        ("printf ready", "'ready'"),
        ("echo ready", "''"),
    ],
)
def test_what_is_no_answer(line: str, shown: str) -> None:
    """It is shown as far as it can be read, and not waited for."""
    answers = talk_to_all({"a": ("sh", "-c", line)}, dialogue, limit_s=LIMIT_S)

    why = f"sh there says {shown}, which is no answer; is it a wrapper?"
    assert answers == {"a": NoAnswer(why=why)}


@pytest.mark.parametrize("before", ["", "echo ready;", "echo ready; read -r word; echo 3;"])
def test_a_command_that_hears_nothing(before: str) -> None:
    """It closes its input and says why."""
    line = f"{before} exec <&-; echo gone >&2; exit 1"

    answers = talk_to_all({"a": ("sh", "-c", line)}, dialogue, limit_s=LIMIT_S)

    assert answers == {"a": NoAnswer(why="gone")}
