"""What everything of a lab is called. Names are enough to find and remove all that is its own."""

import re
from pathlib import Path
from typing import Annotated

from pydantic import Field, PositiveFloat, PositiveInt

from ringside_core.specs import Noun, RefusalError

MOST_HOSTS = 64
# `rs-`, the name, `-` and two digits must fit into the 15 characters of a Linux interface.
# No digits: lab `a1` would share the host name `a11` with lab `a`.
_NAME = re.compile(r"[a-z]{1,9}")
_HOST = re.compile(r"(?P<lab>[a-z]{1,9})(?P<index>[1-9][0-9]?)")


class LabHost(Noun):
    """One host of a lab, as its hosts file, its sshd and its namespace know it."""

    name: str
    index: PositiveInt
    address: str
    cores: PositiveFloat  # of CPU time per second, whatever the other hosts do
    affinity: Annotated[tuple[int, ...], Field(min_length=1)]  # cores that it may run on

    @property
    def lab(self) -> str:
        """The lab that it belongs to."""
        return self.name.removesuffix(str(self.index))

    @property
    def interface(self) -> str:
        """Its end of its link."""
        return interface_of(self.lab)

    @property
    def namespace(self) -> str:
        """Its network namespace, as `ip netns` lists it; also its port on the bridge."""
        return numbered(self.lab, self.index)


def check_name(name: str) -> str:
    """A lab's name, as it is.

    Raises:
        RefusalError: names of interfaces and hosts cannot be made of it.
    """
    if not _NAME.fullmatch(name):
        raise RefusalError(
            "A lab's name must be one to nine lower-case letters: hosts are numbered after it.",
            received=repr(name),
            advice="Example: --name blue, whose hosts are blue1, blue2, …",
        )
    return name


def lab_of(host: str) -> str:
    """The name of the lab that a host's name says.

    Raises:
        RefusalError: no host of a lab is called so.
    """
    match = _HOST.fullmatch(host)
    if match is None:
        raise RefusalError(
            "A host of a lab is called by the lab's name and its number.",
            received=repr(host),
            advice="Example: lab2. `ringside lab status` lists them.",
        )
    return match["lab"]


def interface_of(name: str) -> str:
    """The interface of every host, and of this machine on the bridge: one name everywhere.

    Horovod's Gloo takes one interface name for all hosts.
    """
    return f"rs-{name}"


def numbered(name: str, index: int) -> str:
    """Host `index`'s namespace, and the port of the bridge that its link ends in."""
    return f"{interface_of(name)}-{index}"


def is_numbered(name: str, candidate: str) -> bool:
    """Whether this is the name of a namespace, port or cgroup of this lab, of any host."""
    return re.fullmatch(rf"{re.escape(interface_of(name))}-[0-9]+", candidate) is not None


LABS = Path("/run/ringside-lab")


def folder_of(name: str) -> Path:
    """Where the lab keeps its keys, logs and state."""
    return LABS / name
