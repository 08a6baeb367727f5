"""Which congestion control hosts get, and what is written for it: a folder in place of /proc."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ringside.lab import command, link
from ringside.lab.link import set_congestion_control
from ringside.lab.names import LabHost
from ringside_core.specs import RefusalError
from tests.unit.lab.test_names import host

HOSTS = (host(1, 1, (0,)), host(2, 1, (0,)))


class Kernel:
    """A kernel with reno, bbr and cubic, of which cubic is not for everybody; hosts begin with bbr.

    Attributes:
        refuses: the answer to hosts that write; empty: they may.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.available = folder / "tcp_available_congestion_control"
        self.allowed = folder / "tcp_allowed_congestion_control"
        self.available.write_text("reno bbr cubic\n")
        self.allowed.write_text("reno bbr\n")
        for one in HOSTS:
            self.choose(one, "bbr")
        self.refuses = ""

    def choose(self, host: LabHost, name: str) -> None:
        """Let a host have this from the beginning."""
        own = self._folder / host.namespace
        own.write_text(f"{name}\n")
        os.utime(own, (0, 0))

    @property
    def chosen(self) -> list[str]:
        """What each host has."""
        return [(self._folder / one.namespace).read_text().strip() for one in HOSTS]

    @property
    def written(self) -> list[bool]:
        """Which hosts were written."""
        return [(self._folder / one.namespace).stat().st_mtime != 0 for one in HOSTS]

    def run(self, *argv: str, stdin: str = "") -> str:
        """Commands as the lab gives them; each namespace has a file of its own."""
        assert argv[:3] == ("ip", "netns", "exec")
        own = self._folder / argv[3]
        shared = str(self._folder / "tcp_congestion_control")
        said = command.run(*(str(own) if one == shared else one for one in argv[4:]), stdin=stdin)
        if own.stat().st_mtime != 0:
            if self.refuses:
                raise RefusalError("The system refused.", received=self.refuses)
            assert own.read_text().strip() in self.allowed.read_text().split()
        return said


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """In place of this machine's."""
    made = Kernel(tmp_path)
    monkeypatch.setattr(link, "TCP", tmp_path)
    monkeypatch.setattr(link, "run", made.run)
    return made


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From then on nothing can be written by this process, as in a container."""

    def refuse(path: Path, text: str) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    return lambda: monkeypatch.setattr(Path, "write_text", refuse)


def test_what_one_host_has_already(kernel: Kernel) -> None:
    """Only the other host is written."""
    kernel.choose(HOSTS[0], "reno")

    set_congestion_control(HOSTS, "reno")

    assert kernel.chosen == ["reno", "reno"]
    assert kernel.written == [False, True]


def test_a_list_that_cannot_be_written(kernel: Kernel, read_only: Callable[[], None]) -> None:
    """The message says why and what is possible, beginning with what hosts have."""
    read_only()

    with pytest.raises(RefusalError, match="can be set on a lab's hosts from here") as refused:
        set_congestion_control(HOSTS, "cubic")

    assert "cubic: [Errno 30] Read-only file system" in str(refused.value)
    assert "--congestion-control bbr or reno." in refused.value.advice


def test_a_host_that_cannot_be_written(kernel: Kernel) -> None:
    """The message says why, and the list is as it was."""
    kernel.refuses = "tee: Operation not permitted"

    with pytest.raises(RefusalError, match="cubic: tee: Operation not permitted") as refused:
        set_congestion_control(HOSTS, "cubic")

    assert "--congestion-control bbr or reno." in refused.value.advice
    assert kernel.allowed.read_text().split() == ["reno", "bbr"]
