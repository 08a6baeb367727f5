"""On which hosts a command runs: the flags that say so."""

from pathlib import Path
from typing import Annotated

import typer

from launch import Placement
from ringside_core.specs import RefusalError, read_hostfile

HostfileFlag = Annotated[
    Path | None, typer.Option(help="Lines of `host slots=N`. Default: this machine.")
]
InterfaceFlag = Annotated[
    str | None,
    typer.Option(
        help="Network interface that every stack uses, by its name on all hosts. Default: the one "
        "by which this machine reaches them."
    ),
]
ServersOnFlag = Annotated[
    str | None,
    typer.Option(
        help="Hosts of parameter servers, with commas between. Default: they take turns over all."
    ),
]
OversubscribeFlag = Annotated[
    bool,
    typer.Option("--oversubscribe", help="Run more replicas on a host than it has cores."),
]


def placement_from(
    hostfile: Path | None,
    interface: str | None = None,
    servers_on: str | None = None,
    oversubscribe: bool = False,
) -> Placement:
    """What the flags say together.

    Raises:
        RefusalError: a hostfile that cannot be read, a server on a host that is not in it, or
            flags that mean nothing without one.
    """
    if oversubscribe and hostfile is None:
        raise RefusalError(
            "--oversubscribe is of runs on the hosts of a hostfile.",
            received="--oversubscribe",
            advice="Leave it away (without a hostfile nobody asks for cores), or add --hostfile.",
        )
    return Placement(
        hosts=read_hostfile(hostfile) if hostfile else None,
        interface=interface,
        servers_on=tuple(name for one in (servers_on or "").split(",") if (name := one.strip())),
        oversubscribe=oversubscribe,
    )
