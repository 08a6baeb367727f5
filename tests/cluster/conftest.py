"""A lab of hosts for each file of this folder, and ways to run a command on one."""

import errno
import shlex
import socket
import string
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from ringside.lab.command import check_machine
from ringside.lab.lab import Lab, take_down
from ringside_core.specs import RefusalError

Remote = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def needs_a_lab() -> None:
    """Skip, saying what is missing, where no lab can be made."""
    try:
        check_machine()
    except RefusalError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def lab_name(needs_a_lab: None) -> Iterator[str]:
    """`rta`, or the next one that no living process of pytest holds: a killed one holds none."""
    for letter in string.ascii_lowercase:
        name = f"rt{letter}"
        with socket.socket(socket.AF_UNIX) as lock:
            try:
                lock.bind(f"\0ringside-tests-{name}")  # no file: it is gone with its process
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            yield name
            return
    pytest.fail("too many tests at once on this machine")


@pytest.fixture
def other_name(lab_name: str) -> Iterator[str]:
    """The name of a lab that a test makes itself; removed whatever happens."""
    name = f"{lab_name}x"
    take_down(name)  # what a killed pytest has left
    yield name
    take_down(name)


@pytest.fixture(scope="module")
def lab(lab_name: str, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Hosts with a core each at 1 Gbit/s: two, or the file's HOSTS. Who changes a link mends it."""
    take_down(lab_name)  # what a killed pytest has left
    hosts = getattr(request.module, "HOSTS", 2)
    lab = Lab.up(name=lab_name, hosts=hosts, rate="1gbit", cores=1)
    try:
        yield lab
    finally:
        take_down(lab_name)


@pytest.fixture(scope="module")
def hostfile(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first two hosts of the lab, a slot each."""
    file = tmp_path_factory.mktemp("hosts") / "two"
    file.write_text("".join(f"{host.name} slots=1\n" for host in lab.hosts[:2]))
    return file


@pytest.fixture(scope="session")
def remote() -> Remote:
    """Run a command on a host of the lab, as a person would: `remote("lab1", ["hostname"])`."""

    def run(
        host: str, command: Sequence[str] | str, *, timeout: float = 60
    ) -> "subprocess.CompletedProcess[str]":
        line = command if isinstance(command, str) else shlex.join(command)
        return subprocess.run(
            ["ssh", "-n", "-o", "BatchMode=yes", host, line],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run
