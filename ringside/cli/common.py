"""What several commands share: flags, and the folder in which a command leaves its results."""

import contextlib
import math
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from filelock import FileLock, Timeout

from launch import LauncherName
from ringside_core.specs import Placement, RefusalError, RunSpec, read_hostfile

LOCK = ".lock"
BackendNames = Annotated[
    str | None,
    typer.Option(
        help="Backends, separated by commas; options and settings after colons: a:b=1:c=2. "
        "Default: all; on several hosts, those that can use several.",
        show_default=False,
    ),
]
Sizes = Annotated[str | None, typer.Option(help="Numbers of replicas, separated by commas: 1,2,4.")]
FolderName = Annotated[
    str | None, typer.Option(help="Name of the folder. Default: workload and time.")
]
OutputFolder = Annotated[Path, typer.Option(help="Where that folder is made.")]

LauncherFlag = Annotated[
    LauncherName,
    typer.Option(help="Of arms with several processes; auto: what each backend joins."),
]
HostfileFlag = Annotated[
    Path | None, typer.Option(help="File with lines `host slots=N`. Default: this machine.")
]
InterfaceFlag = Annotated[
    str | None,
    typer.Option(
        help="Network interface for every stack, with the same name on all hosts. Default: the one "
        "that this machine reaches them by."
    ),
]
ServersOnFlag = Annotated[
    str | None,
    typer.Option(
        help="Hosts of the parameter servers, separated by commas. Default: all hosts in turn."
    ),
]
OversubscribeFlag = Annotated[
    bool, typer.Option("--oversubscribe", help="Run more replicas on a host than it has cores.")
]

MinReplicas = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="On several hosts: while some are missing, start with fewer replicas, but not fewer "
        "than so many. Go on with more once there are hosts for them. Default: as many as asked.",
        show_default=False,
    ),
]


def finite(value: float | None) -> float | None:
    """A finite number, for a flag: `min=` lets inf and nan through."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number.")
    return value


Price = Annotated[
    float | None,
    typer.Option(
        callback=finite,
        help="What a host costs for an hour, in any currency: an epoch and the target get a cost.",
    ),
]

Deadline = Annotated[
    float,
    typer.Option(
        min=1,
        callback=finite,
        help="Seconds without a step, of training or evaluation, after which a run counts as hung. "
        "It has 120 at least to start, and ten times as many, 600 at least, to load, build, "
        "compile and save.",
    ),
]


def placement_from(
    hostfile: HostfileFlag = None,
    interface: InterfaceFlag = None,
    servers_on: ServersOnFlag = None,
    oversubscribe: OversubscribeFlag = False,
) -> Placement:
    """The placement that the flags describe.

    Raises:
        RefusalError: a hostfile that cannot be read, a server on a host that is not in it, or
            flags that need a hostfile.
    """
    if oversubscribe and hostfile is None:
        raise RefusalError(
            "--oversubscribe needs a hostfile: on this machine alone, cores are not checked.",
            received="--oversubscribe",
            advice="Leave it out, or add --hostfile.",
        )
    return Placement(
        hosts=read_hostfile(hostfile) if hostfile else None,
        interface=interface,
        servers_on=tuple(name for one in (servers_on or "").split(",") if (name := one.strip())),
        oversubscribe=oversubscribe,
    )


def default_name(spec: RunSpec) -> str:
    """The name of a folder: what was trained, and when."""
    return f"{spec.workload_name}-{datetime.now():%Y%m%d-%H%M%S}"


def new_folder(output: Path, name: str) -> Path:
    """Make the folder of a command. A folder that already holds files is refused."""
    folder = output / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(path.name != LOCK for path in folder.iterdir()):
            raise RefusalError(
                "The results need a folder of their own.",
                received=f"{folder}, which holds files already",
                advice="Choose another --name.",
            )
    except OSError as error:
        raise RefusalError(
            "The folder for the results must be writable.",
            received=error,
            advice="Choose another with --output.",
        ) from None
    return folder


@contextlib.contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold a folder; the kernel releases it when this process ends, also when it is killed.

    Raises:
        RefusalError: another command holds it.
    """
    # A soft lock, filelock's fallback, would outlive a process that was killed.
    lock = FileLock(folder / LOCK, blocking=False, fallback_to_soft=False)
    try:
        held = lock.acquire()
    except Timeout:
        raise RefusalError(
            "Another ringside works in this folder.",
            received=folder,
            advice="Wait until it has ended.",
        ) from None
    with held:
        yield
