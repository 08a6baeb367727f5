"""A task ends with its launcher, and with nothing that only looks like the launcher's end."""

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from launch import Plan, Site, make_plan
from launch.plan import RUN_ID
from launch.remote.sweep import kill_members
from ringside_core.specs import RunSpec, Topology

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
CALLER = """
import pathlib, sys
sys.path.insert(0, sys.argv[2])
from launch import Plan, execute
plan = Plan.model_validate_json(pathlib.Path(sys.argv[1]).read_text())
print(execute(plan, on_progress=lambda progress: print(progress, flush=True)).outcome)
"""
# A mount namespace of one's own, in which /proc/stat is a file that can be written.
OWN_STAT = 'cat /proc/stat > "$0" && mount --bind "$0" /proc/stat && exec "$@"'


def caller_of(plan: Plan, folder: Path) -> list[str]:
    """A command that executes a plan."""
    file = folder / "plan.json"
    file.write_text(plan.model_dump_json())
    return [sys.executable, "-c", CALLER, str(file), str(ROOT)]


def plan_of(folder: Path, **order: int) -> Plan:
    """The plan of one task; see followed/train.py."""
    spec = RunSpec(
        backend="serial",
        options={},
        topology=Topology(),
        global_batch=8,
        epochs=1,
        workload_options=dict(order),
    )
    site = dataclasses.replace(Site.here(), root=str(HERE / "followed"))
    return make_plan(spec, run_dir=folder / "run", site=site)


def test_a_step_of_the_clock_ends_nothing(tmp_path: Path) -> None:
    """The kernel tells the start of a process in ticks since boot; NTP moves the time of boot."""
    stat = tmp_path / "stat"
    apart = ["unshare", "--map-root-user", "--mount", "sh", "-c", OWN_STAT, str(stat)]
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs mount namespaces")
    plan = plan_of(tmp_path, steps=30, clock=1)

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


def test_a_task_ends_with_its_launcher(tmp_path: Path, wait_until: Callable[..., object]) -> None:
    """Also where nobody waits for the launcher that was killed, and its guard was killed too."""
    plan = plan_of(tmp_path, steps=10_000)
    try:
        with subprocess.Popen(
            caller_of(plan, tmp_path), stdout=subprocess.PIPE, text=True
        ) as caller:
            assert caller.stdout is not None
            next(line for line in caller.stdout if "training, step" in line)
            children = Path(f"/proc/{caller.pid}/task/{caller.pid}/children").read_text().split()
            guard, task = sorted(map(int, children), key=lambda pid: "train.py" in command_of(pid))

            os.kill(caller.pid, signal.SIGSTOP)  # it would start another guard
            os.kill(guard, signal.SIGKILL)
            caller.kill()

            wait_until(lambda: RUN_ID not in environment_of(task))
    finally:
        kill_members(plan.run_id)


def command_of(pid: int) -> str:
    """Its words, with a zero byte after each."""
    return Path(f"/proc/{pid}/cmdline").read_text()


def environment_of(pid: int) -> str:
    """The environment of a process; empty once it has ended."""
    try:
        return Path(f"/proc/{pid}/environ").read_text(errors="replace")
    except OSError:
        return ""
