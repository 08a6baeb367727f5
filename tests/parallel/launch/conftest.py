"""Runs of a fake train.py under the real launchers, and a look at what they leave behind."""

import contextlib
import dataclasses
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from launch import LauncherName, Plan, Site, make_plan
from launch.children import SWEEPER
from launch.plan import LAUNCHER_NAME
from launch.remote import sweep
from ringside_core.specs import (
    Host,
    Placement,
    read_surroundings,
)
from tests.contract.cases import Case
from tests.waiting import wait_until

HERE = Path(__file__).resolve().parent
QUICK = HERE.parents[1] / "quick"
PlanOf = Callable[..., Plan]


def cmdline(process: psutil.Process) -> list[str]:
    """The command of a process; empty if it has gone meanwhile."""
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


def processes_of(run_id: str) -> list[psutil.Process]:
    """Living processes of a run, found without Ringside's own sweep."""
    found = []
    for process in psutil.process_iter():
        try:
            marked = process.environ().get("RINGSIDE_RUN_ID") == run_id
            guards = run_id in process.cmdline()
            if (marked or guards) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.fixture(name="plan_of")
def plan_of_(tmp_path: Path) -> Iterator[PlanOf]:
    """Make plans of runs of `program`/train.py; afterwards nothing of any may be left."""
    plans: list[Plan] = []
    before = semaphores()

    def plan_of(
        backend: str,
        *,
        replicas: int = 2,
        launcher: LauncherName = "auto",
        options: dict[str, Any] | None = None,
        hosts: tuple[Host, ...] | None = None,
        program: str = "fake",
        **order: str | int | float,
    ) -> Plan:
        case = Case(backend, replicas, options or {})
        spec = case.spec("digits", global_batch=8 * replicas, epochs=1, workload_options=order)
        site = dataclasses.replace(Site.here(), root=str(HERE / program))
        run_dir = tmp_path / f"run-{len(plans)}"
        plan = make_plan(
            spec, run_dir=run_dir, placement=Placement(hosts=hosts), launcher=launcher, site=site
        )
        # horovodrun does not look at how it was built.
        first, *others = plan.processes
        env = {**first.env, "PYTHONPATH": str(QUICK)}
        plan = plan.replace(processes=(first.replace(env=env), *others))
        plans.append(plan)
        return plan

    yield plan_of
    for plan in plans:
        assert_nothing_left(plan)
    # Others on this machine make some too, and remove them between two of our looks.
    wait_until(lambda: not (semaphores() - before) or not (semaphores() - before - mapped()))


def semaphores() -> set[str]:
    """Semaphores of multiprocessing: horovodrun makes some."""
    return {str(file) for file in Path("/dev/shm").glob("sem.mp-*")}


def mapped() -> set[str]:
    """Semaphores that somebody on this machine still uses."""
    found: set[str] = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, FileNotFoundError):
            found |= {area.path for area in process.memory_maps()}
    return found


def assert_nothing_left(plan: Plan) -> None:
    """No process, port, shared memory or half a record of a run."""
    left = [f"{process.pid} {cmdline(process)}" for process in processes_of(plan.run_id)]
    assert left == []
    for place in (tempfile.gettempdir(), sweep.MEMORY):
        assert list(Path(place).glob(f"{sweep.temporary_prefix(plan.run_id)}*")) == []
    assert list(Path(plan.run_dir).rglob(".*")) == []
    for task in plan.cluster.tasks() if plan.cluster else []:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", int(task.address.rpartition(":")[2])))


@pytest.fixture
def nothing_left() -> Callable[[Plan], bool]:
    """Whether all processes of a plan, and its guard, are gone."""
    return lambda plan: not processes_of(plan.run_id)


@pytest.fixture
def guards_of() -> Callable[[Plan], list[int]]:
    """The processes that would sweep after a plan if we were killed."""
    return lambda plan: [
        process.pid for process in processes_of(plan.run_id) if plan.run_id in cmdline(process)
    ]


@pytest.fixture
def members_by_name() -> Callable[[Plan], dict[str, int]]:
    """Find the processes of a plan: its tasks by name, the launcher, a middleman of horovodrun."""

    def find(plan: Plan) -> dict[str, int]:
        found = {}
        for process in processes_of(plan.run_id):
            try:
                command, environment = cmdline(process), process.environ()
            except psutil.Error:  # it has died since it was found
                continue
            if str(SWEEPER) in command:
                continue
            if process.ppid() != os.getpid():
                if "multiprocessing.spawn" in " ".join(command):
                    found["middleman"] = process.pid
                elif command[1:2] == ["-u"] and plan.processes[0].name == LAUNCHER_NAME:
                    found[read_surroundings(environment).task_name] = process.pid
                continue
            for own in plan.processes:
                # horovodrun --mpi becomes mpirun; all others keep their arguments.
                same = list(own.argv[1:]) == command[-len(own.argv) + 1 :]
                if len(plan.processes) == 1 or (same and own.env.items() <= environment.items()):
                    found[own.name] = process.pid
        return found

    return find
