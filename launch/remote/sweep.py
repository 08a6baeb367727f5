"""Kill every process of a run, wherever it is. Also a program of its own.

horovodrun and mpirun put their children into sessions of their own, and a child may do the same.
But all of them inherit the run's id in their environment. This file needs only the standard
library, because it is also started by its path: on other machines as the run's keeper
(`sweep.py RUN_ID --keep`), and here as the guard that outlives the launcher
(`sweep.py RUN_ID --when-gone PID`).
"""

import argparse
import contextlib
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

MARK = "RINGSIDE_RUN_ID"
# Where Open MPI's files of a run are put: on this machine, and on others, whose memory may be full.
MEMORY, TEMPORARY = "/dev/shm", "/tmp"
# A process in uninterruptible sleep (a dead network disk) ends only when the kernel lets it.
PATIENCE_S = 10.0
REMOTE_PATIENCE_S = 20.0
# The launcher sends a byte a second. After this silence it is gone, or the link to it is.
SILENCE_S = 15.0
# Bytes from the launcher to a keeper, beside the byte of the heartbeat.
FREEZE, THAW, PREEMPT = b"f", b"t", b"p"
# By this a training saves and ends (trainers/preemption.py).
ENDING = signal.SIGUSR1
HALF = ".half"  # as in ringside_core/specs/files.py
ENVIRONMENT = ".environment"  # in the folder of a run; see private.py
JANITOR = b"multiprocessing.resource_tracker"
JANITOR_S = 3.0


def members(run_id: str) -> list[int]:
    """Process ids of the living processes that carry the id, without this one."""
    wanted = f"{MARK}={run_id}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        # It is gone, a zombie, or another user's: not ours to kill.
        with contextlib.suppress(OSError):
            environment = Path(f"/proc/{entry}/environ").read_bytes()
            if wanted in environment.split(b"\0"):
                found.append(int(entry))
    return found


def temporary_prefix(run_id: str) -> str:
    """How the folders begin in which the processes of a run keep their temporary files.

    They lie in the temporary directory of each machine, because names of sockets must be short, or
    in its shared memory.
    """
    return f"ringside-{run_id}-"


def scratch(place: str, run_id: str) -> str:
    """A folder for a launcher's files."""
    return f"{place}/{temporary_prefix(run_id)}launcher"


def kill_members(run_id: str) -> list[int]:
    """Kill until two searches in a row find none; then remove their temporary files.

    One search is not enough: at the moment of its exec a process has no readable environment.

    Returns:
        The ids of processes that could not be killed in time; normally empty.
    """
    start = time.monotonic()
    while alive := members(run_id) or members(run_id):
        passed = time.monotonic() - start
        janitors = [pid for pid in alive if _is_janitor(pid)] if passed < JANITOR_S else []
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                # A janitor may be frozen.
                os.kill(pid, signal.SIGCONT if pid in janitors else signal.SIGKILL)
        if passed > PATIENCE_S:
            break
        _wait_for_exits(alive)
    for place in {tempfile.gettempdir(), TEMPORARY, MEMORY}:
        for folder in Path(place).glob(f"{temporary_prefix(run_id)}*"):
            shutil.rmtree(folder, ignore_errors=True)
    return alive


def _is_janitor(pid: int) -> bool:
    """A resource tracker of Python's: with its users dead, it removes their semaphores and ends."""
    try:
        return JANITOR in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _wait_for_exits(pids: list[int]) -> None:
    """Return when all have exited, or after a tenth of a second."""
    with contextlib.ExitStack() as stack:
        poll, waiting = select.poll(), 0
        for pid in pids:
            with contextlib.suppress(OSError):
                handle = os.pidfd_open(pid)
                stack.callback(os.close, handle)
                poll.register(handle, select.POLLIN)
                waiting += 1
        end = time.monotonic() + 0.1
        while waiting and (left := end - time.monotonic()) > 0:
            for handle, _ in poll.poll(left * 1000):
                poll.unregister(handle)
                waiting -= 1


def tidy(run_dir: Path) -> None:
    """Remove half-written files and the private environment."""
    (run_dir / ENVIRONMENT).unlink(missing_ok=True)
    for half in run_dir.rglob(f".*{HALF}"):
        half.unlink(missing_ok=True)


def sweep_remote(commands: list[list[str]]) -> list[list[str]]:
    """Run the commands that end processes elsewhere, all at once; skip machines out of reach.

    Returns:
        The commands that failed, or took too long.
    """
    none = subprocess.DEVNULL
    running = [
        subprocess.Popen(command, stdin=none, stdout=none, stderr=none, start_new_session=True)
        for command in commands
    ]
    deadline = time.monotonic() + REMOTE_PATIENCE_S
    for process in running:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return [
        command for command, process in zip(commands, running, strict=True) if process.returncode
    ]


def greeting(run_id: str) -> str:
    """The first line of a keeper; before it, a login script may have talked."""
    return f"keeper of {run_id}\n"


def keep(run_id: str) -> None:
    """Send the input back, and do what it says. Return at its end, or after too long a silence."""
    with contextlib.suppress(OSError):
        os.write(1, greeting(run_id).encode())
        while select.select([0], [], [], SILENCE_S)[0] and (said := os.read(0, 4096)):
            if PREEMPT in said:
                preempt_members(run_id)
            if last := said.translate(None, b"." + PREEMPT)[-1:]:
                signal_members(run_id, signal.SIGSTOP if last == FREEZE else signal.SIGCONT)
            os.write(1, said)


def signal_members(run_id: str, number: signal.Signals) -> None:
    """Send a signal to every process of the run."""
    # Twice: ringside_core/slow.py may let a process go on until it is stopped itself.
    for pid in 2 * members(run_id):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def preempt_members(run_id: str) -> bool:
    """Ask the processes of the run that train to save and end; returns whether there are any."""
    # Those that have a handler. So has mpirun, which would pass it on to ranks that have none yet.
    asked = False
    for pid in members(run_id):
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{pid}/status").read_text()
            caught = int(re.findall(r"^SigCgt:\s*(\w+)", status, re.MULTILINE)[0], 16)
            program = Path(f"/proc/{pid}/exe").readlink().name
            if caught >> (ENDING - 1) & 1 and program.startswith("python"):
                os.kill(pid, ENDING)
                asked = True
    return asked


def wait_until_gone(pid: int) -> None:
    """Return when the parent of this process, with this id, has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    # Check after the handle is open, so that it cannot be another process with the same id.
    if os.getppid() == pid:
        select.select([handle], [], [])


def main() -> int:
    """Sweep now, or when the launcher is gone or no longer heard."""
    parser = argparse.ArgumentParser()
    parser.add_argument("run_id")
    parser.add_argument("--when-gone", type=int)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--run-dir", type=Path)
    parser.add_argument("--remote", action="append", default=[])
    options = parser.parse_args()
    if options.when_gone:
        wait_until_gone(options.when_gone)
    if options.keep:
        keep(options.run_id)
    left = kill_members(options.run_id)
    sweep_remote([shlex.split(command) for command in options.remote])
    if options.run_dir:
        tidy(options.run_dir)
    return 1 if left else 0


if __name__ == "__main__":
    raise SystemExit(main())
