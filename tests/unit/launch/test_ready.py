"""What is asked just before a run begins, and what a refusal leaves: nothing."""

import os
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

import ringside.cli.main
from launch import execute
from launch.claim import holds_run
from launch.interrupts import Interrupts
from tests.unit.launch.conftest import PlanOf
from tests.unit.launch.reached import DIRECT, reached_by


@pytest.fixture
def refused(
    plan_of: PlanOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], str]:
    """Why a run on two hosts, reached by this program, was refused."""

    def refused(ssh: str) -> str:
        reached_by(ssh, tmp_path, monkeypatch)
        plan = plan_of("multi_worker_mirrored", hosts=2, hostfile="a\nb").replace(
            run_dir=str(tmp_path / "runs" / "new"), python=sys.executable
        )
        execution = execute(plan)
        assert execution.outcome.kind == "refused"
        return execution.outcome.reason

    return refused


def test_a_host_that_says_no(refused: Callable[[str], str], tmp_path: Path) -> None:
    """Ringside's own words explain what ssh said, and nothing half-written is left."""
    reason = refused("echo 'ssh: connect to host a port 22: Connection refused' >&2; exit 255")

    words = "no ssh server answers there; start it, or name its port in ~/.ssh/config"
    assert reason == f"a is not ready: {words}. b is not ready: {words}."
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.usefixtures("signals_heard")
def test_a_signal_to_a_caller_with_threads(
    plan_of: PlanOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal ends the check at once; hosts that hang are not waited for."""
    reached_by("exec sleep 3600", tmp_path, monkeypatch)
    plan = plan_of("multi_worker_mirrored", hosts=2, hostfile="a\nb").replace(
        run_dir=str(tmp_path / "new"), python=sys.executable
    )
    began = time.monotonic()

    with suppress(KeyboardInterrupt), Interrupts() as held, ThreadPoolExecutor(1) as pool:
        os.kill(os.getpid(), signal.SIGINT)
        raised = pool.submit(execute, plan, interrupts=held).exception()

    assert isinstance(raised, KeyboardInterrupt)
    assert time.monotonic() - began < 10


def test_a_host_without_a_keeper(refused: Callable[[str], str], tmp_path: Path) -> None:
    """What was in the run's folder before stays; the logs of ssh stay too."""
    (tmp_path / "runs" / "new" / "logs").mkdir(parents=True)
    (tmp_path / "runs" / "new" / "logs" / "mine").write_text("mine")

    reason = refused('case "$*" in *--keep*) echo no keeper >&2; exit 3;; esac; ' + DIRECT)

    assert reason == "a is not ready: no keeper. b is not ready: no keeper."
    left = sorted(path.name for path in (tmp_path / "runs" / "new").rglob("*"))
    assert left == ["logs", "mine", "ssh-a.log", "ssh-b.log"]


@pytest.mark.parametrize("file", ["records/rank-0.json", "progress/rank-0", "spec.json"])
def test_what_holds_a_run(file: str, tmp_path: Path) -> None:
    """A folder for records holds a run only if something is in it."""
    (tmp_path / file).parent.mkdir(exist_ok=True)
    before = holds_run(tmp_path)
    (tmp_path / file).touch()

    assert (before, holds_run(tmp_path), holds_run(tmp_path / "new")) == (False, True, False)


def test_hosts_that_a_run_does_not_use_may_be_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`launch` asks only the hosts that it uses, and names no other."""
    reached_by("exit 255", tmp_path, monkeypatch)
    (tmp_path / "hosts").write_text("a.invalid\nb.invalid\n")

    flags = ["--backend", "serial", "--hostfile", str(tmp_path / "hosts")]
    code = ringside.cli.main.run(["launch", *flags, "--run-dir", str(tmp_path / "new")])

    said = capsys.readouterr().err
    assert code == 2
    assert "a.invalid: exit 255" in said
    assert "b.invalid" not in said
    assert not (tmp_path / "new").exists()
