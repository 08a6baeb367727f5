"""A keeper: it answers, and when nobody speaks to it any more it kills what belongs to its run."""

import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launch import Plan
from launch.keepers import SWEEPER, Keepers

PlanOf = Callable[..., Plan]


@pytest.fixture
def run_id() -> str:
    """A run of this test alone."""
    return secrets.token_hex(8)


@pytest.fixture
def member(run_id: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A process of the run, that would stay for an hour."""
    with subprocess.Popen(["sleep", "3600"], env={"RINGSIDE_RUN_ID": run_id}) as process:
        yield process
        process.kill()


def test_a_keeper_answers_and_sweeps(run_id: str, member: "subprocess.Popen[bytes]") -> None:
    """What comes in goes back; the end of its input is the end of the run on its host."""
    command = [sys.executable, "-I", "-S", str(SWEEPER), run_id, "--keep"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as keeper:
        assert keeper.stdin is not None and keeper.stdout is not None
        os.write(keeper.stdin.fileno(), b".")
        answer = os.read(keeper.stdout.fileno(), 10)
        alive = member.poll() is None

        keeper.stdin.close()

        assert keeper.wait(30) == 0
    assert (answer, alive) == (b".", True)
    assert member.wait(30) == -9


# A keeper's ssh, without a network: the last word is the command.
DIRECT_SSH = '#!/bin/sh\nfor last; do :; done\nexec sh -c "exec $last"\n'


def test_keepers_of_a_plan(
    run_id: str,
    member: "subprocess.Popen[bytes]",
    plan_of: PlanOf,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who answers is there; who is killed is lost; letting go sweeps."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "ssh").write_text(DIRECT_SSH)
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    plan = plan_of("horovod", hosts=2, hostfile="a\nb").replace(
        run_dir=str(tmp_path), run_id=run_id, python=sys.executable
    )

    with Keepers(plan) as keepers:
        absent = keepers.roll_call(30)
        lost_at_first = keepers.lost()
        keepers._keepers[1].popen.kill()
        keepers._keepers[1].popen.wait()
        lost = keepers.lost()
        no_answer = keepers.roll_call(30)

    assert (absent, lost_at_first) == ((), ())
    assert (lost, no_answer) == (("b",), ("b",))
    assert keepers.survivors == []
    assert member.wait(30) == -9
