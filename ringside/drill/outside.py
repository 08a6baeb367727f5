"""The faults that are made from outside of a run's tasks, and the processes of a run."""

import contextlib
import os
import signal
from pathlib import Path

import psutil

from launch.launchers.slurm import node_addresses
from ringside.drill import disk
from ringside.drill.left import CHECKPOINT, fits_of
from ringside.lab.lab import Lab
from ringside.lab.names import lab_of
from ringside_core.specs import RefusalError, read_surroundings

SIGNALS = {
    "rank-killed": signal.SIGKILL,
    "rank-frozen": signal.SIGSTOP,
    "rank-terminated": signal.SIGTERM,
    "server-killed": signal.SIGKILL,
    "checkpoint-damaged": signal.SIGKILL,
}
DAMAGED_BYTES = 64


def strike(fault: str, run_dir: Path, task: str, *, host: str, supervisor: int, fit: int) -> None:
    """Make a fault from outside of the run in a folder.

    Args:
        fault: its name.
        run_dir: of the run.
        task: of which it is made.
        host: whose link is cut; empty: none is.
        supervisor: process id of the run's supervisor.
        fit: in which training of a script, from 1.
    """
    if fault == "checkpoint-damaged":
        damage(fits_of(run_dir)[fit - 1] / CHECKPOINT)
    if fault in SIGNALS:
        os.kill(process_of(run_dir, task), SIGNALS[fault])
    elif fault == "launcher-killed":
        os.kill(supervisor, signal.SIGKILL)
    elif fault == "starter-killed":
        os.kill(starter_of(supervisor), signal.SIGKILL)
    elif fault == "disk-full":
        disk.fill(run_dir)
    elif host:
        Lab.find(lab_of(host)).cut(host)


def mend(fault: str, run_dir: Path, host: str) -> None:
    """Mend what no process of the run can mend: a link, a disk."""
    if fault == "disk-full":
        disk.empty(run_dir)
    elif host:
        Lab.find(lab_of(host)).mend(host)


def processes_of(run_dir: Path) -> list[psutil.Process]:
    """The living processes of a run that name its folder: its tasks, and who started them."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and str(run_dir) in process.cmdline():
                found.append(process)
    return found


def process_of(run_dir: Path, task: str) -> int:
    """The process id of one task.

    Raises:
        RefusalError: no process on this machine is that task.
    """
    for process in processes_of(run_dir):
        with contextlib.suppress(psutil.Error):
            words = [word for word in process.cmdline()[1:] if not word.startswith("-")]
            if not words or Path(words[0]).name != "train.py":
                continue  # what started it has its words too
            if read_surroundings(process.environ(), node_addresses).task_name == task:
                return int(process.pid)
    raise RefusalError(
        "A drill strikes processes of this machine, or of a lab on it.",
        received=f"{task} is not among the processes that name {run_dir}",
        advice="Use hosts of a lab (ringside lab up), or no --hostfile.",
    )


def starter_of(supervisor: int) -> int:
    """The process id of horovodrun or mpirun under a supervisor."""
    for child in psutil.Process(supervisor).children():
        with contextlib.suppress(psutil.Error):
            if {Path(word).name for word in child.cmdline()[:2]} & {"horovodrun", "mpirun"}:
                return int(child.pid)
    raise ProcessLookupError(f"no horovodrun or mpirun under process {supervisor}")


def damage(file: Path) -> None:
    """Change bytes in the middle of a file."""
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    for at in range(middle, min(middle + DAMAGED_BYTES, len(content))):
        content[at] ^= 0xFF
    file.write_bytes(content)
