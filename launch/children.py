"""The processes that Ringside starts, and the guard that ends them if Ringside is killed."""

import contextlib
import os
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from launch.logs import log_file
from launch.plan import LAUNCHER, LAUNCHER_NAME, Plan, Process
from launch.remote import private, ssh, sweep
from launch.site import PRELOAD
from ringside_core.readings.process import start_ticks
from ringside_core.specs.surroundings import HOROVODRUN, NOT_SERVED

# Between SIGTERM and SIGKILL: time for a task to write its record, and for horovodrun and mpirun
# to end their ranks themselves.
TERMINATE_S = 2.0
# Between SIGKILL and the end of a process: on a busy machine the kernel needs time.
KILL_S = 10.0
SWEEPER = Path(sweep.__file__).resolve()


def environment(parent: Mapping[str, str], process: Process, *, tell: str) -> dict[str, str]:
    """The parent's environment without an outer launcher's variables, and the process's own.

    Args:
        parent: the environment of this process.
        process: its variables are added.
        tell: value of RINGSIDE_LAUNCHER; empty: do not set it.
    """
    inherited = {
        name: value
        for name, value in parent.items()
        if name not in (*HOROVODRUN, "TF_CONFIG", *(row[1] for row in NOT_SERVED))
        and not name.startswith(("OMPI_COMM_WORLD_", "PMIX_", "RINGSIDE_"))
        and (name, value) != ("PYTHONHASHSEED", "random")
    }
    own = {**process.env, **({LAUNCHER: tell} if tell else {})}
    if PRELOAD in own and parent.get(PRELOAD):
        own[PRELOAD] += f":{parent[PRELOAD]}"
    # Else the order of a set of texts, of which authors make vocabularies, is each process's own.
    return {"PYTHONHASHSEED": "0", **inherited, "PATH": search_path(parent), **own}


def search_path(parent: Mapping[str, str]) -> str:
    """Where the programs of a run are looked for: first beside the interpreter.

    `.venv/bin/ringside` works without activating .venv, so horovodrun and mpirun must be found.
    """
    programs = str(Path(sys.executable).parent)
    path = parent.get("PATH", os.defpath)
    return path if path.split(os.pathsep)[0] == programs else f"{programs}{os.pathsep}{path}"


@dataclass
class Child:
    """A started process of the plan; `exited` is the time of its end, on the monotonic clock."""

    process: Process
    popen: subprocess.Popen[bytes]
    handle: int
    exited: float | None = None
    asked_to_stop: bool = False

    @property
    def returncode(self) -> int | None:
        """Exit code, or minus the signal; None while it runs."""
        return self.popen.returncode


@dataclass
class Children:
    """All processes of a plan. Leaving the `with` block ends every one, and their descendants.

    Attributes:
        parent: the environment that they inherit.
        ended_at: time at which the last of them ended, on the monotonic clock.
        survivors: processes of the run that could not be killed, and what failed to clean up.
    """

    plan: Plan
    parent: Mapping[str, str]
    started: dict[str, Child] = field(default_factory=dict)
    ended_at: float = 0.0
    survivors: list[str] = field(default_factory=list)
    _guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self._keep_guarded()
            for process in self.plan.processes:
                self._start(process)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def alive(self) -> list[Child]:
        """Those that have not exited."""
        return [child for child in self.started.values() if child.exited is None]

    def wait(self, seconds: float) -> None:
        """Return when a process exits, or after this time; note exits, restart a lost guard."""
        poll = select.poll()
        for child in self.alive():
            poll.register(child.handle, select.POLLIN)
        poll.poll(seconds * 1000)
        for child in self.alive():
            if child.popen.poll() is not None:
                child.exited = self.ended_at = time.monotonic()
        self._keep_guarded()

    def stop_gently(self, child: Child) -> None:
        """Ask a process to end: by SIGTERM; on another machine, by closing its input."""
        child.asked_to_stop = True
        if child.popen.stdin is not None:
            child.popen.stdin.close()
        else:
            _signal_group(child, signal.SIGTERM)

    def _start(self, process: Process) -> None:
        tell = f"{os.getpid()}:{start_ticks(os.getpid())}"
        if self.plan.remote_hosts and process.name == LAUNCHER_NAME:
            tell = ""  # it would reach ranks on other machines, where this process does not exist
        env = environment(self.parent, process, tell=tell)
        if process.private:
            env = private.hide(env, Path(process.private))
        with log_file(Path(self.plan.run_dir), process.name).open("ab") as log:
            popen = subprocess.Popen(
                process.argv,
                env=env,
                stdin=subprocess.PIPE if process.holds_stdin else subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.started[process.name] = Child(process, popen, os.pidfd_open(popen.pid))

    def _wait_for_all(self, seconds: float) -> None:
        give_up = time.monotonic() + seconds
        while self.alive() and (left := give_up - time.monotonic()) > 0:
            self.wait(left)

    def _keep_guarded(self) -> None:
        """Start a guard if there is none: it waits for our end, even by SIGKILL, then sweeps."""
        if self._guard is not None and self._guard.poll() is None:
            return
        plan = self.plan
        sweeps = (
            ssh.remote_command(host, (plan.python, "-I", "-S", str(SWEEPER), plan.run_id))
            for host in plan.remote_hosts
        )
        self._guard = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", str(SWEEPER), plan.run_id),
                *("--when-gone", str(os.getpid())),
                *("--run-dir", plan.run_dir),
                *(f"--remote={shlex.join(command)}" for command in (*sweeps, *plan.cleanup)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )

    def _end(self) -> None:
        """End everything: by asking, then by SIGKILL, then every process with the run's id."""
        for child in self.alive():
            self.stop_gently(child)
        self._wait_for_all(TERMINATE_S)
        stubborn = self.alive()
        self.survivors = list(map(str, sweep.kill_members(self.plan.run_id)))
        for child in stubborn:
            # It may have cleared its environment. Its group's id cannot belong to another yet,
            # because its leader was not waited for.
            _signal_group(child, signal.SIGKILL)
        self._wait_for_all(KILL_S)
        failed = sweep.sweep_remote([*map(list, self.plan.cleanup)])
        self.survivors += [f"what `{shlex.join(command)}` did not end" for command in failed]
        sweep.tidy(Path(self.plan.run_dir))
        for child in self.started.values():
            os.close(child.handle)
            if child.popen.stdin is not None:
                child.popen.stdin.close()
        if self._guard is not None:
            self._guard.kill()
            self._guard.wait()


def _signal_group(child: Child, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.popen.pid, number)
