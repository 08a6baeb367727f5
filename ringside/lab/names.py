"""The names of all parts of a lab. They are enough to find and remove everything of it."""

import re
from pathlib import Path
from typing import Annotated

from pydantic import Field, PositiveFloat, PositiveInt

from ringside_core.specs import Noun, RefusalError

MOST_HOSTS = 64
# `rs-`, the name, `-` and two digits must fit into the 15 characters of a Linux interface.
# A name has no digits: otherwise labs `a1` and `a` could both have a host `a11`.
_NAME = re.compile(r"[a-z]{1,9}")
_HOST = re.compile(r"(?P<lab>[a-z]{1,9})(?P<index>[1-9][0-9]?)")


class LabHost(Noun):
    """One host of a lab."""

    name: str
    index: PositiveInt
    address: str
    cores: PositiveFloat  # CPU seconds per second, whatever the other hosts do
    affinity: Annotated[tuple[int, ...], Field(min_length=1)]  # cores that it may run on

    @property
    def lab(self) -> str:
        """The name of its lab."""
        return self.name.removesuffix(str(self.index))

    @property
    def interface(self) -> str:
        """The interface at its end of the link."""
        return interface_of(self.lab)

    @property
    def namespace(self) -> str:
        """Its network namespace, as `ip netns` lists it; also its port on the bridge."""
        return f"{self.interface}-{self.index}"


def check_name(name: str) -> str:
    """Return a lab's name if it is valid.

    Raises:
        RefusalError: interfaces and hosts cannot be named after it.
    """
    if not _NAME.fullmatch(name):
        raise RefusalError(
            "A lab's name must be one to nine lower-case letters: hosts are numbered after it.",
            received=repr(name),
            advice="Example: --name blue, whose hosts are blue1, blue2, …",
        )
    return name


def lab_of(host: str) -> str:
    """The name of the lab, taken from a host's name.

    Raises:
        RefusalError: a host of a lab cannot have this name.
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


def lab_of_numbered(candidate: str) -> str:
    """The lab whose host a namespace, port or cgroup is named after; empty: none."""
    match = re.fullmatch(r"rs-([a-z]{1,9})-[0-9]+", candidate)
    return match[1] if match else ""


LABS = Path("/run/ringside-lab")


def folder_of(name: str) -> Path:
    """Where the lab keeps its keys, logs and state."""
    return LABS / name
