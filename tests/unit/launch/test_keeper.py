"""A keeper: it answers, and when its launcher is silent it kills what belongs to its run."""

import os
import resource
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from launch import Plan
from launch.remote import keepers as keepers_room
from launch.remote import sweep
from launch.remote.keepers import SWEEPER, Keepers
from tests.unit.launch.conftest import PlanOf
from tests.unit.launch.reached import DIRECT, reached_by
from tests.waiting import wait_until


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


def test_a_keeper_answers_freezes_thaws_and_sweeps(
    run_id: str, member: "subprocess.Popen[bytes]"
) -> None:
    """It echoes its input; heartbeats change nothing. At its end it ends frozen processes too."""
    command = [sys.executable, "-I", "-S", str(SWEEPER), run_id, "--keep"]
    messages = [
        (b".", False),
        (sweep.FREEZE, True),
        (b".", True),
        (sweep.THAW, False),
        (sweep.THAW + sweep.FREEZE, True),
    ]

    def takes_a_moment(stopped: bool) -> None:
        status = psutil.Process(member.pid).status
        wait_until(lambda: (status() == psutil.STATUS_STOPPED) == stopped, seconds=10)

    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as keeper:
        assert keeper.stdin is not None and keeper.stdout is not None
        assert keeper.stdout.readline().decode() == sweep.greeting(run_id)
        for said, stopped in messages:
            os.write(keeper.stdin.fileno(), said)
            assert os.read(keeper.stdout.fileno(), 10) == said
            takes_a_moment(stopped)
        keeper.stdin.close()

        assert keeper.wait(30) == 0
    assert member.wait(30) == -9


@pytest.fixture
def plan_by(
    run_id: str, plan_of: PlanOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Plan]:
    """A plan of two hosts that are reached by this program."""
    (tmp_path / "logs").mkdir()

    def plan_by(ssh: str) -> Plan:
        reached_by(ssh, tmp_path, monkeypatch)
        return plan_of("horovod", hosts=2, hostfile="a\nb").replace(
            run_dir=str(tmp_path), run_id=run_id, python=sys.executable
        )

    return plan_by


def test_keepers_of_a_plan(
    member: "subprocess.Popen[bytes]", plan_by: Callable[[str], Plan]
) -> None:
    """A keeper that answers is there; a killed one is lost; letting go ends the run's processes."""
    plan = plan_by(DIRECT)

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


def test_a_launcher_that_stands_still_is_heard(
    plan_by: Callable[[str], Plan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example at a blocked terminal: it reads no keeper, but they hear the launcher."""
    monkeypatch.setattr(keepers_room, "BEAT_S", 0.01)
    # It ends when it has heard us five times; the pipe of its answers is what we stand still at.
    five = "/usr/bin/head -c 5 >/dev/null"

    with Keepers(plan_by(five)) as five_times:
        codes = [keeper.popen.wait(30) for keeper in five_times._keepers]

    assert codes == [0, 0]


# The quickest stand-in for ssh and the keeper behind it. The fifth word is the id of the run.
STAND_IN = 'for last; do :; done; set -- $last; echo "keeper of $5"; exec cat'


@pytest.mark.nightly
@pytest.mark.parametrize("hosts", [600, 2000])
def test_many_hosts(
    hosts: int, plan_of: PlanOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than `select` can wait for, and more than a process may usually have open."""
    reached_by(STAND_IN, tmp_path, monkeypatch)
    (tmp_path / "logs").mkdir()
    names = tuple(f"host-{number}" for number in range(hosts))
    plan = plan_of("serial", replicas=1).replace(run_dir=str(tmp_path), remote_hosts=names)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
    try:
        with Keepers(plan) as keepers:
            absent = keepers.roll_call(120)
            lost = keepers.lost()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

    assert (absent, lost, keepers.survivors) == ((), (), [])
