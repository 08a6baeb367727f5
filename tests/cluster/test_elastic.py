"""A host is lost and comes back: the run goes on with one replica, then with two."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launch.attempts import trainers_of
from ringside.drill.left import deviation, unlike
from ringside.lab.lab import Lab

ROOT = Path(__file__).resolve().parents[2]
PART_LIMIT_S = 120  # of which a lost host takes 15 to be noticed, and 10 to be asked
RUN = (
    *(sys.executable, "-m", "ringside.cli.main", "launch", "--precision", "float64"),
    *("--workload", f"{ROOT}/tests/cluster/held.py:workload"),
    *("--checkpoint-steps", "4", "--global-batch", "6", "--epochs", "60"),
)
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(6 * PART_LIMIT_S)]


def test_a_run_shrinks_and_grows(lab: Lab, hostfile: Path, tmp_path: Path) -> None:
    """At its end every row and every weight is as in a serial run without a fault."""
    whole, run_dir = tmp_path / "whole", tmp_path / "run"
    slow = tmp_path / "slow"
    run = [*RUN, "-w", f"file={slow}"]
    subprocess.run([*run, "--backend", "serial", "--run-dir", str(whole)], check=True, cwd=ROOT)
    slow.touch()
    elastic = ("--backend", "multi_worker_mirrored", "--replicas", "2", "--run-dir", str(run_dir))
    hosts = ("--hostfile", str(hostfile), "--restarts", "1", "--min-replicas", "1")
    lost = lab.hosts[1].name

    with subprocess.Popen([*run, *elastic, *hosts], cwd=ROOT, stdout=subprocess.PIPE) as running:
        try:
            wait_for_training(run_dir, running, attempts=0, tasks=2)
            lab.cut(lost)
            wait_for_training(run_dir, running, attempts=1, tasks=1)
            lab.mend(lost)
            wait_for_training(run_dir, running, attempts=2, tasks=2)
            slow.unlink()
            said = running.communicate(timeout=PART_LIMIT_S)[0].decode()
        finally:
            lab.mend(lost)
            running.kill()

    assert running.returncode == 0, said
    attempts = json.loads((run_dir / "attempts.json").read_text())["attempts"]
    assert [one["outcome"]["kind"] for one in attempts] == ["failed", "preempted", "completed"]
    assert [one["resized"] for one in attempts] == [False, True, False]
    assert f"with 1 of 2 replicas: {lost}: it cannot be reached" in said
    assert unlike(run_dir, whole) == 0
    off = deviation(run_dir, whole)
    assert off is not None
    assert off <= 1e-10


def wait_for_training(
    run_dir: Path, running: "subprocess.Popen[bytes]", *, attempts: int, tasks: int
) -> None:
    """Return when so many tasks train, after so many attempts that have ended."""
    give_up = time.monotonic() + PART_LIMIT_S
    while True:
        ended = len(list((run_dir / "attempts").glob("*")))
        training = [one for one in trainers_of(run_dir) if one.phase == "training"]
        if ended == attempts and len(training) == tasks:
            return
        assert running.poll() is None, running.communicate()[0].decode()
        assert time.monotonic() < give_up, f"{ended} attempts, {training}"
        time.sleep(0.1)
