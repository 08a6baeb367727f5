"""Start, find and end the processes of a host."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from ringside.lab import init, share
from ringside.lab.command import PATH
from ringside.lab.names import LabHost, folder_of, interface_of, lab_of_numbered
from ringside_core.specs import RefusalError

NAMESPACES = Path("/run/netns")
OWN_NAMESPACE = Path("/proc/self/ns/net")
SSH_PORT = 22
START_S = 30.0  # far more than sshd takes; a machine with many labs is slow
END_S = 30.0
POLL_S = 0.02
INIT = str(Path(init.__file__).resolve())


def start(host: LabHost, join: Path | None) -> "subprocess.Popen[str]":
    """Start the host's first process; it waits for `release`.

    Args:
        host: its namespace exists.
        join: the file by which a process joins the limit of CPU time; None: there is no limit.
    """
    folder = folder_of(host.lab)
    # Join the limit first: `ip netns exec` mounts its own /sys, without cgroups.
    enter = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(join)] if join else []
    cores = ",".join(map(str, host.affinity))
    argv = [
        # Its own session outlives the terminal, and it is no child of this process. So a long-lived
        # process that makes labs has no dead children to wait for.
        *("setsid", "--fork"),
        *enter,
        *("taskset", "--cpu-list", cores),
        *("ip", "netns", "exec", host.namespace),
        *("unshare", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child"),
        "--mount-proc",
        *(sys.executable, "-I", "-S", INIT, host.name, str(folder / f"{host.name}.sshd")),
    ]
    with (folder / f"{host.name}.log").open("w") as log:
        return subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd="/",
            env={"PATH": PATH, "LANG": os.environ.get("LANG", "C.UTF-8")},
        )


def release(host: LabHost, process: "subprocess.Popen[str]") -> None:
    """Let a host go on after it said that it is in its namespaces: then it can always be found."""
    if process.stdout is None or process.stdin is None:
        raise AssertionError("a host is started with pipes")
    with process.stdout, process.stdin:
        # It says one short line: once its beginning is there, its end can be read too.
        if not select.select([process.stdout], [], [], START_S)[0]:
            raise _not_up(host, f"its first process says nothing for {START_S:g} s")
        if process.stdout.readline() != "here\n":
            raise _not_up(host, "its first process ended")
        process.stdin.write("go\n")
    process.wait()


def wait_for_sshd(host: LabHost) -> None:
    """Wait until the host's sshd takes connections."""
    deadline = time.monotonic() + START_S
    while True:
        with contextlib.suppress(OSError):
            socket.create_connection((host.address, SSH_PORT), timeout=1).close()
            return
        if not processes(host.namespace):
            raise _not_up(host, "its sshd ended")
        if time.monotonic() > deadline:
            raise _not_up(host, f"its sshd does not listen after {START_S:.0f} s")
        time.sleep(POLL_S)


def _not_up(host: LabHost, why: str) -> RefusalError:
    log = (folder_of(host.lab) / f"{host.name}.log").read_text(errors="replace")
    last = " / ".join(log.strip().splitlines()[-3:]) or "its log is empty"
    return RefusalError(f"Host {host.name} did not start: {why}.", received=last)


def processes(namespace: str) -> dict[int, str]:
    """Processes in a network namespace: process id on this machine, and command."""
    try:
        own = _inode(NAMESPACES / namespace)
    except OSError:
        return {}
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # it ended meanwhile
                if _inode(folder / "ns" / "net") == own:
                    found[int(folder.name)] = (folder / "comm").read_text().strip()
    return found


def _inode(path: Path) -> tuple[int, int]:
    known = path.stat()
    return known.st_dev, known.st_ino


def refuse_on_a_host() -> None:
    """Refuse to make, change or end labs from inside a lab: this process would end with it.

    Raises:
        RefusalError: this process is on a lab's host.
    """
    own = _inode(OWN_NAMESPACE)
    hosts = NAMESPACES.glob(f"{interface_of('')}*-*")
    for path in hosts:
        with contextlib.suppress(OSError):  # removed meanwhile
            if _inode(path) == own:
                raise RefusalError(
                    "A lab is made, changed and taken down from the machine that it is on.",
                    received=f"a process on a host of a lab ({path.name})",
                    advice="Leave the host first: exit.",
                )


def namespaces(name: str) -> list[str]:
    """The network namespaces of a lab that exist."""
    if not NAMESPACES.is_dir():
        return []
    return sorted(path.name for path in NAMESPACES.iterdir() if lab_of_numbered(path.name) == name)


def end_all(name: str) -> None:
    """End every process of every host of a lab, remove their limits, and wait until all are gone.

    A process that is just starting may join its limit after the last look. Then the limit cannot
    be removed, and the loop goes on. Once it is removed, no process can join.

    Raises:
        RefusalError: a process does not end (perhaps it waits in the kernel for a disk), or it can
            only be ended elsewhere.
    """
    deadline = time.monotonic() + END_S
    while (left := _all_of(name)) or not _limits_removed(name):
        if time.monotonic() > deadline:
            raise RefusalError(
                f"Processes of lab {name} do not end.",
                received=", ".join(map(str, sorted(left))) or "none that has a number here",
                advice="Look at them with ps, and call `ringside lab down` again.",
            )
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(POLL_S)


def _limits_removed(name: str) -> bool:
    if any(map(share.has_foreign_members, share.groups(name))):
        raise RefusalError(
            f"Lab {name} must be taken down where it was made.",
            received="processes of another PID namespace (a container, perhaps)",
            advice=f"Call `ringside lab down --name {name}` there.",
        )
    return share.remove(name)


def _all_of(name: str) -> set[int]:
    """Processes in the lab's namespaces, or just entering them."""
    inside = {pid for one in namespaces(name) for pid in processes(one)}
    return inside.union(*(share.members(one) for one in share.groups(name)))


def busy(host: LabHost) -> tuple[bool, int]:
    """Whether the host's sshd runs, and how many processes run on it beside its own three."""
    commands = list(processes(host.namespace).values())
    # Its own: unshare (which waits for the first process), the first process, and sshd.
    return "sshd" in commands, max(len(commands) - 3, 0)
