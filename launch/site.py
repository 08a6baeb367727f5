"""What a plan needs to know about this machine; tests describe one that does not exist."""

import contextlib
import os
import secrets
import shlex
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from launch.plan import LISTEN_ON, RUN_ID, Plan, Process
from launch.remote import sweep
from launch.remote.host_facts import interfaces
from launch.remote.ssh import OPTIONS
from ringside_core.specs import RefusalError, RunSpec

ROOT = Path(__file__).resolve().parent.parent
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1"})
LOOPBACK = "lo"
PRELOAD = "LD_PRELOAD"
DISCARD_PORT = 9
FIRST_LOCAL_PORT, PORTS_IN_BLOCK, BLOCKS = 10000, 100, 100


def interface_to(hosts: tuple[str, ...]) -> str:
    """The interface by which the kernel would send to the first host with an address; else empty.

    Nothing is sent: to connect a datagram socket only looks up the route.
    """
    for host in hosts:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((host, DISCARD_PORT))
            except (OSError, UnicodeError):  # the latter: no name could be so
                continue
            own = probe.getsockname()[0]
        return next((name for name, there in interfaces().items() if own in there), "")
    return ""


def own_names() -> frozenset[str]:
    """Names and IPv4 addresses of this machine, in small letters."""
    name = socket.gethostname()
    names = {*LOOPBACK_NAMES, name, name.partition(".")[0]}.union(*interfaces().values())
    with contextlib.suppress(OSError, UnicodeError):  # its resolver may not know it
        names.add(socket.getaddrinfo(name, None, flags=socket.AI_CANONNAME)[0][3] or name)
    return frozenset(map(str.lower, names))


@dataclass(frozen=True)
class Site:
    """What a plan needs to know about this machine, and the mark of its run.

    Attributes:
        python: the interpreter, the same on every host.
        root: the checkout, the same on every host.
        cwd: folder in which processes on other machines start, so that they find
            `my_model.py:workload`.
        run_id: marks the processes of one run.
        names: names and addresses of this machine, in small letters.
        is_root: for root, Open MPI needs a flag.
        scratch: folder that a launcher may fill on each machine; it is removed with the run.
        free_ports: asks the kernel for a number of TCP ports.
        program: file in the checkout that each task runs. It is started by its path, so that it
            imports this checkout, also where Ringside is not installed or another one is.
        interface_to: the name of the network interface through which other hosts are reached.
        listen_library: makes a process listen on one interface (scripts/listen.c); empty: it was
            not built.
    """

    python: str
    root: str
    cwd: str
    run_id: str
    names: frozenset[str]
    is_root: bool
    scratch: str
    free_ports: Callable[[int], tuple[int, ...]]
    program: str = "train.py"
    interface_to: Callable[[tuple[str, ...]], str] = field(default=interface_to)
    listen_library: str = ""

    @classmethod
    def here(cls) -> Self:
        """This machine, this interpreter, a new run."""
        run_id = secrets.token_hex(8)
        folder = sweep.MEMORY if os.access(sweep.MEMORY, os.W_OK) else sweep.TEMPORARY
        library = Path(sys.prefix) / "lib" / "ringside_listen.so"
        return cls(
            python=sys.executable,
            root=str(ROOT),
            cwd=str(Path.cwd()),
            run_id=run_id,
            names=own_names(),
            is_root=os.geteuid() == 0,
            scratch=sweep.scratch(folder, run_id),
            free_ports=free_ports,
            listen_library=str(library) if library.exists() else "",
        )

    def listen_on(self, interface: str) -> dict[str, str]:
        """Variables with which a process listens on one interface; empty: on all, as without us."""
        if not (interface and self.listen_library):
            return {}
        return {LISTEN_ON: interface, PRELOAD: self.listen_library}

    def process(
        self,
        name: str,
        host: str,
        argv: tuple[str, ...],
        *,
        env: dict[str, str],
        serves: bool = False,
    ) -> Process:
        """A task, here or over ssh: there in the same folder, and it ends with its connection."""
        if self.is_local(host):
            return Process(name=name, argv=argv, env=env, serves=serves)
        assignments = [f"{key}={value}" for key, value in env.items()]
        line = shlex.join(["exec", "env", *assignments, *argv, "--watch-stdin"])
        return Process(
            name=name,
            argv=("ssh", *OPTIONS, host, f"cd {shlex.quote(self.cwd)} && {line}"),
            env={RUN_ID: env[RUN_ID]},  # ssh itself belongs to the run too
            serves=serves,
            holds_stdin=True,
        )

    def plan(self, spec: RunSpec, run_dir: Path, **fields: Any) -> Plan:
        """The plan of this run by this interpreter; its other fields are given."""
        own = {"run_id": self.run_id, "python": self.python}
        return Plan(spec=spec, run_dir=str(run_dir), **own, **fields)

    def is_local(self, host: str) -> bool:
        """Whether a name of a host means this machine."""
        return host.lower() in self.names

    def away(self, names: Iterable[str]) -> tuple[str, ...]:
        """The hosts that are not this machine."""
        return tuple(name for name in dict.fromkeys(names) if not self.is_local(name))

    def interface(self, names: Iterable[str], wanted: str | None = None) -> str:
        """The network interface that a run uses; empty: the run stays on this machine."""
        away = self.away(names)
        return (wanted or self.interface_to(away)) if away else ""

    def task_command(self, run_dir: Path) -> tuple[str, ...]:
        """The command that starts one task: the same in every arm."""
        # `-u`, because horovodrun makes its ranks write without a buffer, so all tasks must do so.
        # Also, the log then has the last lines of a killed rank.
        program = (self.python, "-u", f"{self.root}/{self.program}")
        spec_file = str(run_dir / "spec.json")
        return (*program, "--spec", spec_file, "--run-dir", str(run_dir), "--log")


def free_ports(count: int) -> tuple[int, ...]:
    """Free ports of this machine, which no other process with Ringside draws meanwhile.

    They are below the ports that the kernel gives to connections, any of which could take one.
    """
    found: list[int] = []
    ports = _own.setdefault(os.getpid(), _OwnPorts())
    while len(found) < count:
        port = ports.draw()
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            found.append(port)
    return tuple(found)


# A process marks a block of ports by an abstract socket. That one belongs to this network
# namespace, as ports do, and ends with the process. The marks of the two newest blocks are kept.
class _OwnPorts:
    """Ports that no other process draws: it takes seconds until a task listens at what it draws."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: Iterator[int] = iter(())
        self._marks: deque[int] = deque()  # files, which the end of the process closes

    def draw(self) -> int:
        """One more port; another thread may draw at the same time."""
        with self._lock:
            port = next(self._left, None)
            if port is None:
                self._left = iter(self._marked_block())
                port = next(self._left)
            return port

    def _marked_block(self) -> range:
        start = secrets.randbelow(BLOCKS)
        for place in range(BLOCKS):
            block = (start + place) % BLOCKS
            mark = socket.socket(socket.AF_UNIX)
            try:
                mark.bind(f"\0ringside-ports-{block}")
            except OSError:
                mark.close()
                continue
            if len(self._marks) == 2:
                os.close(self._marks.popleft())
            self._marks.append(mark.detach())
            first = FIRST_LOCAL_PORT + block * PORTS_IN_BLOCK
            return range(first, first + PORTS_IN_BLOCK)
        raise RefusalError(
            f"A launch takes its ports from {FIRST_LOCAL_PORT} to "
            f"{FIRST_LOCAL_PORT + BLOCKS * PORTS_IN_BLOCK - 1}, {PORTS_IN_BLOCK} at a time.",
            received=f"{BLOCKS} other processes that have drawn from them",
            advice="Wait until some launches have ended.",
        )


_own: dict[int, _OwnPorts] = {}  # by the id of the process: a fork draws from a block of its own
