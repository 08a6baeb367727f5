"""A task ends with its launcher, and with nothing that only looks like the launcher's end."""

import subprocess
from functools import partial
from pathlib import Path

import psutil
import pytest

from launch.plan import RUN_ID
from launch.remote.sweep import kill_members
from tests.parallel.launch.caller import caller_of, calling
from tests.parallel.launch.conftest import PlanOf
from tests.waiting import wait_until

# A mount namespace of its own, in which /proc/stat is a file that can be written.
OWN_STAT = 'cat /proc/stat > "$0" && mount --bind "$0" /proc/stat && exec "$@"'


@pytest.fixture(name="followed")
def followed_(plan_of: PlanOf) -> PlanOf:
    """Makes the plan of one task; see unfinished/train.py."""
    return partial(plan_of, "serial", replicas=1, program="unfinished", then="wait")


def test_a_step_of_the_clock_ends_nothing(followed: PlanOf, tmp_path: Path) -> None:
    """The kernel tells the start of a process in ticks since boot; NTP moves the time of boot."""
    stat = tmp_path / "stat"
    apart = ["unshare", "--map-root-user", "--mount", "sh", "-c", OWN_STAT, str(stat)]
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs mount namespaces")
    plan = followed(steps=30, clock=1)

    done = subprocess.run(
        [*apart, *caller_of(plan, tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.stdout.splitlines()[-1:] == ["completed"], done
    boots = [line for line in stat.read_text().splitlines() if line.startswith("btime")]
    assert boots != [
        line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime")
    ]


def test_a_task_ends_with_its_launcher(followed: PlanOf, tmp_path: Path) -> None:
    """Also if no process waits for the launcher that was killed, and its guard was killed too."""
    plan = followed(steps=10_000)
    try:
        with calling(plan, tmp_path) as caller:
            assert caller.stdout is not None
            next(line for line in caller.stdout if "training, step" in line)
            launcher = psutil.Process(caller.pid)
            guard, task = sorted(launcher.children(), key=lambda one: RUN_ID in one.environ())

            launcher.suspend()  # it would start another guard
            guard.kill()
            caller.kill()

            wait_until(lambda: not alive(task))
        # No process was left that could give back the space that was held for its record.
        for held in Path(plan.run_dir).rglob(".*.half"):
            held.unlink()
    finally:
        kill_members(plan.run_id)


def alive(process: psutil.Process) -> bool:
    """Whether it has not ended; its parent may not have waited for it."""
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
