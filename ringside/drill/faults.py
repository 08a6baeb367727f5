"""The faults of a drill: what each of them is, of whom it is made, and where it cannot be."""

from collections.abc import Mapping
from contextlib import suppress

from launch import Plan
from launch.plan import LAUNCHER_NAME
from ringside.drill.disk import may_mount
from ringside.lab.lab import Lab
from ringside.lab.names import lab_of
from ringside_core.specs import Placement, RefusalError, RunSpec

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
    "disk-full": "the disk of the run's folder is full for 10 s",
    "link-cut": "the last host's link is cut for 5 s",
    "host-lost": "the last host's link is cut for 40 s: for the others it is gone",
    "first-host-lost": "so is the first host's, on which the first rank is",
}
# Those that the task makes itself (trainers/fault.py). The others are made from outside.
INSIDE = ("rank-asleep", "rank-raises", "nan")
CUT_S = {"link-cut": 5.0, "host-lost": 40.0, "first-host-lost": 40.0}
# Those that are mended after a time.
LASTS_S = {**CUT_S, "disk-full": 10.0}


def victim(fault: str, spec: RunSpec, plan: Plan) -> str:
    """The task of which a fault is made."""
    if fault == "server-killed":
        return "ps-0"
    if spec.capabilities.process_model != "coordinator":
        return plan.expects[-1]
    # The coordinator alone makes steps, so what a task does after an update only it can do.
    workers = [task for task in plan.expects if task.startswith("worker")]
    return "chief-0" if fault in INSIDE else workers[-1]


def struck_host(fault: str, plan: Plan) -> str:
    """The host whose link a fault cuts; empty: it cuts none."""
    if fault not in CUT_S:
        return ""
    return plan.remote_hosts[0 if fault == "first-host-lost" else -1]


def obstacle(fault: str, spec: RunSpec, plan: Plan, placement: Placement) -> str:
    """Why a fault cannot be made in a run; empty: it can."""
    if fault == "starter-killed" and plan.processes[0].name != LAUNCHER_NAME:
        return "its tasks have no other launcher than Ringside"
    if fault == "server-killed" and spec.capabilities.process_model != "coordinator":
        return "it has no server"
    if fault == "disk-full" and (plan.remote_hosts or not may_mount()):
        return "it needs the right to mount a disk, and all tasks on this machine"
    if fault in CUT_S and len(plan.remote_hosts) < 2:
        return "it is on one host"
    if fault not in INSIDE and not all(map(_is_of_a_lab, placement.names)):
        return "its hosts are not of a lab on this machine"
    return ""


def _is_of_a_lab(host: str) -> bool:
    with suppress(RefusalError):
        return bool(Lab.find(lab_of(host)).host(host))
    return False
