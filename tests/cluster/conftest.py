"""A lab of four hosts for every test of this folder, and a way to run a command on one."""

import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence

import pytest

from lab import Lab
from lab.command import check_machine
from specs import RefusalError

Remote = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def needs_a_lab() -> None:
    """Skip, saying what is missing, where no lab can be made."""
    try:
        check_machine()
    except RefusalError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def lab_name(worker_id: str) -> str:
    """`rt`; of several processes of pytest each has a lab of its own: `rta`, `rtb`, …."""
    return "rt" if worker_id == "master" else "rt" + chr(ord("a") + int(worker_id[2:]) % 26)


@pytest.fixture(scope="session")
def lab(needs_a_lab: None, lab_name: str) -> Iterator[Lab]:
    """Four hosts at 1 Gbit/s. A test that changes a link puts it back."""
    lab = Lab.up(name=lab_name, hosts=4, rate="1gbit")
    try:
        yield lab
    finally:
        lab.down()


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
