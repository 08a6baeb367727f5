"""The faults of a drill: what each of them is, where it cannot be made, and how a run is told."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from pydantic import PositiveInt

from launch import Plan
from launch.plan import LAUNCHER_NAME
from ringside.lab.lab import Lab
from ringside.lab.names import lab_of
from ringside_core.specs import Document, Placement, RefusalError, RunSpec, write_whole

FOLDER = "drill"  # in the folder of a run
REQUEST = "fault.json"
STRUCK, TO_STRIKE = "struck", "to-strike"
REACHED = "reached-"

# What each one does to a run, in the order in which they are made.
FAULTS: Mapping[str, str] = {
    "rank-killed": "the last rank gets SIGKILL",
    "rank-frozen": "the last rank gets SIGSTOP, and stays so",
    "rank-asleep": "Python in the last rank stops; its other threads go on",
    "rank-raises": "the last rank raises an exception",
    "rank-terminated": "the last rank gets SIGTERM",
    "nan": "a weight of the last rank becomes NaN",
    "starter-killed": "horovodrun or mpirun gets SIGKILL",
    "launcher-killed": "`ringside launch` gets SIGKILL, and is started again",
    "server-killed": "the parameter server gets SIGKILL",
    "checkpoint-damaged": "bytes of the newest checkpoint change, then the last rank is killed",
    "link-cut": "the last host's link is cut for 5 s",
    "host-lost": "the last host's link is cut for 40 s: for the others it is gone",
}
# Those that the task makes itself. The others are made from outside.
INSIDE = ("rank-asleep", "rank-raises", "nan")
CUT_S = {"link-cut": 5.0, "host-lost": 40.0}


class FaultRequest(Document):
    """What the tasks of a run are told of a fault.

    Attributes:
        fault: its name.
        task: of which it is made.
        update: after which every task waits until it is made.
    """

    SCHEMA_VERSION: ClassVar[int] = 1

    fault: str
    task: str
    update: PositiveInt


def write_request(run_dir: Path, request: FaultRequest) -> None:
    """Tell the tasks of a run that has not begun."""
    (run_dir / FOLDER).mkdir(parents=True)
    (run_dir / FOLDER / TO_STRIKE).touch()
    write_whole(run_dir / FOLDER / REQUEST, request.to_json())


def tell_struck(run_dir: Path) -> None:
    """Let all tasks go on."""
    (run_dir / FOLDER / TO_STRIKE).rename(run_dir / FOLDER / STRUCK)


def victim(fault: str, spec: RunSpec, plan: Plan) -> str:
    """The task of which a fault is made."""
    if fault == "server-killed":
        return "ps-0"
    if spec.capabilities.process_model != "coordinator":
        return plan.expects[-1]
    # The coordinator alone makes steps, so what a task does after an update only it can do.
    workers = [task for task in plan.expects if task.startswith("worker")]
    return "chief-0" if fault in INSIDE else workers[-1]


def obstacle(fault: str, spec: RunSpec, plan: Plan, placement: Placement) -> str:
    """Why a fault cannot be made in a run; empty: it can."""
    if fault == "starter-killed" and plan.processes[0].name != LAUNCHER_NAME:
        return "its tasks have no other launcher than Ringside"
    if fault == "server-killed" and spec.capabilities.process_model != "coordinator":
        return "it has no server"
    if fault in CUT_S and len(plan.remote_hosts) < 2:
        return "it is on one host"
    if fault not in INSIDE and not all(map(_is_of_a_lab, placement.names)):
        return "its hosts are not of a lab on this machine"
    return ""


def _is_of_a_lab(host: str) -> bool:
    with suppress(RefusalError):
        return bool(Lab.find(lab_of(host)).host(host))
    return False
