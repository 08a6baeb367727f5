"""What a host says about itself. This program is started by its path, also over ssh.

`host_facts.py ready SPEC_FILE PORT…` prints what prevents one run; nothing means that it may begin.
It needs only the standard library.
`host_facts.py facts` prints `ready` when Python has started. It answers a first line with the time
of its clock, and a second line, the questions, with its answers; both are JSON.
"""

import contextlib
import json
import os
import platform
import socket
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("tensorflow", "horovod")


def obstacles(spec_file: Path, ports: list[int]) -> list[str]:
    """What is in the way on this machine; empty when nothing is."""
    taken, found = [], []
    for port in ports:
        with socket.socket() as probe:
            # The last connections of an earlier run may linger (TIME_WAIT); servers do not mind.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError:
                taken.append(str(port))
    if taken:
        ones = f"ports {', '.join(taken)} are" if len(taken) > 1 else f"port {taken[0]} is"
        found = [f"{ones} taken: wait, or repeat (the next run takes others)"]
    if not spec_file.is_file():
        found.append(f"{spec_file} is not there; all machines must see the run's folder")
    return found


def facts(questions: dict[str, Any]) -> dict[str, Any]:
    """This machine, as far as a run depends on it.

    Args:
        questions: `token`: a file, and `paths`: files and folders, that should be seen here;
            `names`: hosts to look up.
    """
    from ringside_core.readings.cores import whole_cores  # `ready` does not need it

    return {
        "identity": _identity(),
        "versions": versions(),
        "cores": whole_cores(),
        "interfaces": interfaces(),
        "addresses": {name: _address(name) for name in questions["names"]},
        "token": _content(questions["token"]),
        "writable": os.access(Path(questions["token"]).parent, os.W_OK),
        "missing": [path for path in questions["paths"] if not Path(path).exists()],
    }


def versions() -> dict[str, str]:
    """What must be the same on all hosts: Python, packages, Ringside's code."""
    from ringside_core.code_version import code_version  # `ready` does not need it

    found = {"Python": platform.python_version(), "Ringside": code_version()[:12]}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def interfaces() -> dict[str, list[str]]:
    """IPv4 addresses by network interface; interfaces without any are left out."""
    import psutil  # `ready` is asked without site-packages

    found: dict[str, list[str]] = {}
    for name, addresses in psutil.net_if_addrs().items():
        for address in addresses:
            if address.family == socket.AF_INET:
                found.setdefault(name, []).append(address.address)
    return found


def _identity() -> str:
    """The same for two names of one machine; containers with networks of their own are several."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{os.stat('/proc/self/ns/net').st_ino}"


def _address(name: str) -> str:
    """IPv4 address of a name here; empty: unknown."""
    try:
        return str(socket.getaddrinfo(name, None, socket.AF_INET)[0][4][0])
    except (OSError, UnicodeError):
        return ""


def _content(file: str) -> str:
    try:
        return Path(file).read_text()
    except OSError:
        return ""


def main(arguments: list[str]) -> int:
    """Answer one of the two requests."""
    if arguments[0] == "ready":
        print("; ".join(obstacles(Path(arguments[1]), [int(port) for port in arguments[2:]])))
        return 0
    sys.path.insert(0, str(ROOT))  # a program that is started by its path does not find Ringside
    print("ready", flush=True)  # Python has started: what comes back now took the way only
    sys.stdin.readline()
    print(time.time(), flush=True)
    print(json.dumps(facts(json.loads(sys.stdin.readline()))), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
