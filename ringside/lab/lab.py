"""A lab as a whole: make it, find it, change it, take it down."""

import contextlib
import os
import shutil
from typing import Annotated, ClassVar, Self

from pydantic import Field, NonNegativeInt

from ringside.lab import host as processes
from ringside.lab import link, login, share
from ringside.lab.command import check_machine
from ringside.lab.link import parse_rate
from ringside.lab.names import LABS, MOST_HOSTS, LabHost, check_name, folder_of, interface_of
from ringside_core.specs import Document, Noun, RefusalError, write_whole
from ringside_core.text import listed

STATE = "state.json"
# The default of Linux, and so of most clusters. What this machine has is not used: some cloud
# images have BBR, which leaves much of a link unused if both directions are full
# (docs/collectives.md).
CONGESTION_CONTROL = "cubic"


class HostState(Noun):
    """What the kernel says of a host at this moment."""

    out_bits_per_s: NonNegativeInt  # 0: the link is not shaped
    in_bits_per_s: NonNegativeInt
    cut: bool
    sshd: bool
    processes: NonNegativeInt  # beyond its first process and its sshd


class Lab(Document):
    """Hosts on this machine, each with an address, a name, an sshd, a link and cores.

    All hosts share one disk, as with NFS. This machine is on the bridge too and plays the login
    node. A lab is written as JSON into its folder. What may change (rates, cuts) is asked from the
    kernel.
    """

    SCHEMA_VERSION: ClassVar[int] = 2

    name: str
    head_address: str
    hosts: Annotated[tuple[LabHost, ...], Field(min_length=1)]
    limited: bool  # whether the kernel keeps each host to its share of cores
    congestion_control: str  # TCP's, of what the hosts send

    @property
    def interface(self) -> str:
        """The name of the link's interface: on every host, and on this machine."""
        return interface_of(self.name)

    @classmethod
    def up(
        cls,
        *,
        name: str = "lab",
        hosts: int = 4,
        rate: str = "1gbit",
        cores: float | None = None,
        congestion_control: str = CONGESTION_CONTROL,
    ) -> Self:
        """Make a lab. If a part of it fails, everything is taken down again.

        Args:
            name: letters; hosts are called by it and their number.
            hosts: how many.
            rate: of each host's link, in each direction.
            cores: CPU time of each host; None: a core, or its part where hosts share one.
            congestion_control: TCP's, as the kernel calls it.

        Raises:
            RefusalError: not root, a tool is missing, a lab of this name is up, or the system
                refused a part.
        """
        check_name(name)
        bits_per_s = parse_rate(rate)
        if not 1 <= hosts <= MOST_HOSTS:
            raise RefusalError(f"A lab has 1 to {MOST_HOSTS} hosts.", received=hosts)
        each = share.default_cores(hosts) if cores is None else cores
        usable = sorted(os.sched_getaffinity(0))
        affinities = [share.cores_of(one, each, usable) for one in range(1, hosts + 1)]
        check_machine()
        link.check_congestion_control(congestion_control)
        processes.refuse_on_a_host()
        with login.one_at_a_time():
            if left := leftovers(name):
                raise RefusalError(
                    "A lab of that name is already up, or has left something behind.",
                    received=f"{name}: {listed(left, limit=3)}",
                    advice=f"Take it down first: ringside lab down --name {name}",
                )
            third = link.free_subnet(link.routes())
            lab = cls(
                name=name,
                head_address=f"10.77.{third}.{link.HEAD}",
                limited=share.tree() is not None,
                congestion_control=congestion_control,
                hosts=tuple(
                    LabHost(
                        name=f"{name}{index}",
                        index=index,
                        address=f"10.77.{third}.{index}",
                        cores=each,
                        affinity=affinity,
                    )
                    for index, affinity in enumerate(affinities, start=1)
                ),
            )
            login.refuse_taken(name, lab.hosts)
            try:
                lab._make(bits_per_s)
            except BaseException:
                _remove(name)
                raise
        return lab

    @classmethod
    def find(cls, name: str = "lab") -> Self:
        """The lab of this name.

        Raises:
            RefusalError: none is up, or another version of Ringside has made it.
        """
        path = folder_of(check_name(name)) / STATE
        check_machine()
        processes.refuse_on_a_host()
        left = leftovers(name)
        if left and not (path.is_file() and processes.namespaces(name)):
            raise RefusalError(
                "The lab of that name is not whole.",
                received=f"{name}: {listed(left, limit=3)}",
                advice=f"Remove the rest: ringside lab down --name {name}",
            )
        if not left:
            others = ", ".join(one for one in names() if one != name)
            raise RefusalError(
                "There is no lab of that name.",
                received=repr(name),
                advice=(f"Up are: {others}. " if others else "")
                + f"Make it: ringside lab up --name {name}",
            )
        try:
            return cls.from_json(path.read_text(), origin=str(path))
        except RefusalError as error:
            raise RefusalError(
                error.rule,
                received=error.received,
                advice="Where another version of Ringside has made the lab, take it down: "
                f"ringside lab down --name {name}",
            ) from None

    def host(self, name: str) -> LabHost:
        """The host of this name."""
        for one in self.hosts:
            if one.name == name:
                return one
        raise RefusalError(
            f"Lab {self.name} has no host of that name.",
            received=repr(name),
            advice=f"It has {', '.join(one.name for one in self.hosts)}.",
        )

    def set_rate(self, host: str | None, rate: str) -> None:
        """Change a link's rate in both directions, also during a run. None: all links."""
        bits_per_s = parse_rate(rate)
        for one in self.hosts if host is None else (self.host(host),):
            link.shape(one, bits_per_s)

    def cut(self, host: str) -> None:
        """Drop every packet from and to this host, as if its cable was pulled."""
        link.set_port(self.host(host), up=False)

    def mend(self, host: str) -> None:
        """Undo `cut`."""
        link.set_port(self.host(host), up=True)

    def look(self, host: LabHost) -> HostState:
        """What the kernel says of a host now."""
        out, into = link.rates(host)
        sshd, busy = processes.busy(host)
        return HostState(
            out_bits_per_s=out, in_bits_per_s=into, cut=link.is_cut(host), sshd=sshd, processes=busy
        )

    def _make(self, bits_per_s: int) -> None:
        folder = folder_of(self.name)
        LABS.mkdir(exist_ok=True)
        LABS.chmod(0o755)  # whatever the umask
        folder.mkdir(mode=0o700)
        write_whole(folder / STATE, self.to_json())
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)  # sshd will not start without it
        link.connect(self.name, self.head_address, self.hosts, bits_per_s)
        link.set_congestion_control(self.hosts, self.congestion_control)
        login.write_logins(self.name, self.head_address, self.hosts)
        login.check_ssh_reads(self.name, self.hosts[0])
        started = [(one, processes.start(one, share.limit(one))) for one in self.hosts]
        for one, process in started:
            processes.release(one, process)
        for one in self.hosts:
            processes.wait_for_sshd(one)
        link.check_forwarding(self.hosts[0], self.hosts[-1])


def names() -> list[str]:
    """Labs that have something on this machine, whether they are up or broken."""
    there = {path.name for path in LABS.iterdir()} if LABS.is_dir() else set()
    return sorted(there | login.names())


def left_behind() -> dict[str, list[str]]:
    """Files and lines in /etc of labs that are not up, by lab: a restart leaves them."""
    gone = (name for name in names() if not folder_of(name).exists())
    return {name: _outside(name) for name in gone}


def _outside(name: str) -> list[str]:
    """What a lab has in /etc."""
    lines = [f"lines in {login.HOSTS}"] if login.is_in_hosts(name) else []
    return [*map(str, login.files(name)), *lines]


def take_down(name: str) -> bool:
    """Remove all that a lab of this name has on this machine, even after a crash.

    Returns:
        Whether there was anything.
    """
    check_name(name)
    check_machine()
    processes.refuse_on_a_host()
    with login.one_at_a_time():
        there = bool(leftovers(name))
        _remove(name)
    return there


def leftovers(name: str) -> list[str]:
    """All that a lab of this name has on this machine, as text for a person."""
    found = [f"namespace {one}" for one in processes.namespaces(name)]
    found += [f"interface {one}" for one in link.interfaces(name)]
    found += [f"cgroup {one}" for one in share.groups(name)]
    found += _outside(name)
    if folder_of(name).exists():
        found.append(str(folder_of(name)))
    return found


def _remove(name: str) -> None:
    processes.end_all(name)
    link.remove(name, processes.namespaces(name))
    login.remove(name)
    shutil.rmtree(folder_of(name), ignore_errors=True)
    with contextlib.suppress(OSError):  # another lab is there
        LABS.rmdir()
    if left := leftovers(name):
        raise RefusalError(f"Lab {name} could not be removed whole.", received=", ".join(left))
