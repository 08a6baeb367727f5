"""This machine, as far as a plan depends on it; tests plan for one that does not exist."""

import contextlib
import os
import secrets
import socket
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from launch import interfaces
from launch.plan import LAUNCHER_NAME, Plan, Process
from ringside_core.specs import RunSpec

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Site:
    """What a plan takes from its surroundings.

    Attributes:
        python: the interpreter, the same on every host.
        root: the checkout, the same on every host.
        cwd: where processes on other machines start, so that `my_model.py:workload` is found.
        run_id: marks the processes of one run.
        names: names and addresses of this machine.
        is_root: Open MPI wants a flag from root.
        scratch: folder that a launcher may fill; removed after the run.
        free_ports: asks for so many TCP ports.
        program: of the checkout, that each task runs.
        interface_to: names the network interface by which others are reached.
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
    interface_to: Callable[[tuple[str, ...]], str] = field(default=interfaces.interface_to)

    @classmethod
    def here(cls) -> Self:
        """This machine, this interpreter, a new run."""
        run_id = secrets.token_hex(8)
        own_name = socket.gethostname()
        memory = Path("/dev/shm")
        folder = memory if os.access(memory, os.W_OK) else Path("/tmp")
        return cls(
            python=sys.executable,
            root=str(ROOT),
            cwd=str(Path.cwd()),
            run_id=run_id,
            names=frozenset(
                {*LOOPBACK_NAMES, own_name, own_name.partition(".")[0], *interfaces.own_addresses()}
            ),
            is_root=os.geteuid() == 0,
            scratch=str(folder / f"ringside-{run_id}"),
            free_ports=free_ports,
        )

    def is_local(self, host: str) -> bool:
        """Whether a name of a host means this machine."""
        return host in self.names

    def away(self, names: Iterable[str]) -> tuple[str, ...]:
        """The hosts that are not this machine."""
        return tuple(name for name in dict.fromkeys(names) if not self.is_local(name))

    def interface(self, names: Iterable[str], wanted: str | None = None) -> str:
        """The network interface that a run uses; empty: it stays on this machine."""
        away = self.away(names)
        return (wanted or self.interface_to(away)) if away else ""

    def task_command(self, run_dir: Path) -> tuple[str, ...]:
        """The command that starts one task: the same in every arm.

        `-u`, because horovodrun makes its ranks write unbuffered, so all others do too; and the
        last lines of a killed rank are in its log.
        """
        return (
            self.python,
            "-u",
            f"{self.root}/{self.program}",
            "--spec",
            str(run_dir / "spec.json"),
            "--run-dir",
            str(run_dir),
            "--log",
        )


LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1"})


def free_ports(count: int) -> tuple[int, ...]:
    """Ask the kernel for ports; all are held until the last is known, so none comes twice."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return tuple(one.getsockname()[1] for one in sockets)


def ranks_plan(
    spec: RunSpec,
    *,
    run_dir: Path,
    site: Site,
    argv: tuple[str, ...],
    env: dict[str, str],
    away: tuple[str, ...],
    scratch: str,
) -> Plan:
    """The plan of one program that starts all the ranks itself."""
    return Plan(
        spec=spec,
        run_dir=str(run_dir),
        processes=(Process(name=LAUNCHER_NAME, argv=argv, env=env),),
        expects=rank_names(spec),
        run_id=site.run_id,
        remote_hosts=away,
        scratch=scratch,
        python=site.python,
    )


def rank_names(spec: RunSpec) -> tuple[str, ...]:
    """Names of the tasks of a run whose processes are numbered by rank."""
    return tuple(f"rank-{rank}" for rank in range(spec.topology.num_processes))
