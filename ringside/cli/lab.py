"""`ringside lab`: hosts on this machine."""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ringside.lab.lab import CONGESTION_CONTROL, Lab, left_behind, names, take_down
from ringside.lab.link import format_rate
from ringside.lab.names import lab_of
from ringside.lab.share import overbooked
from ringside_core.specs import RefusalError

Name = Annotated[
    str, typer.Option(help="Name of the lab, in letters. Its hosts are name1, name2, …")
]
HostName = Annotated[str, typer.Argument(help="A host of `ringside lab status`, for example lab2.")]

command = typer.Typer(
    help="Hosts on this machine: network namespaces with addresses, names, sshd and real links.",
    no_args_is_help=True,
)


@command.command()
def up(
    *,
    name: Name = "lab",
    hosts: Annotated[int, typer.Option(help="Number of hosts.")] = 4,
    rate: Annotated[
        str, typer.Option(help="Rate of each link, in each direction: 10mbit, 2.5gbit.")
    ] = "1gbit",
    cores: Annotated[
        float | None,
        typer.Option(
            min=0.05, help="Cores of each host. Default: 1, or its part of a shared core."
        ),
    ] = None,
    congestion_control: Annotated[
        str, typer.Option(help="TCP congestion control of the hosts, by the kernel's name.")
    ] = CONGESTION_CONTROL,
) -> None:
    """Make hosts on this machine. Then `ssh lab1` works, from here and between the hosts."""
    lab = Lab.up(
        name=name, hosts=hosts, rate=rate, cores=cores, congestion_control=congestion_control
    )
    _show(lab)


@command.command()
def status(*, name: Name = "lab") -> None:
    """Show a lab's hosts and links. The exit code is 1 if no such lab is up."""
    if left := left_behind().get(name):
        print(f"lab {name} is not up, and has left behind: {', '.join(left)}")
        print(f"Remove it: ringside lab down --name {name}")
        raise typer.Exit(1)
    if name not in names():
        others = ", ".join(names()) or "none"
        print(f"no lab {name} is up (labs here: {others})")
        raise typer.Exit(1)
    _show(Lab.find(name))


@command.command()
def down(*, name: Name = "lab") -> None:
    """Remove a lab and everything on its hosts, even after a crash. If there is none, say so."""
    print(f"lab {name} is down" if take_down(name) else f"no lab {name} is up")


@command.command()
def rate(
    rate: Annotated[str, typer.Argument(help="The new rate, for example 100mbit.", metavar="RATE")],
    *,
    host: Annotated[str | None, typer.Option(help="Only this host's link.")] = None,
    name: Annotated[
        str | None, typer.Option(help="All links of this lab. Default: lab, or the lab of --host.")
    ] = None,
) -> None:
    """Change the rate of links, in both directions, while they are in use."""
    lab = lab_of(host) if host else name or "lab"
    if name not in (None, lab):
        raise RefusalError(
            "--host must name a host of the lab.",
            received=f"--host {host} --name {name}",
            advice="Leave out one of them.",
        )
    Lab.find(lab).set_rate(host, rate)


@command.command()
def cut(host: HostName) -> None:
    """Cut a host off: every packet from and to it is lost, as if its cable was pulled."""
    Lab.find(lab_of(host)).cut(host)


@command.command()
def mend(host: HostName) -> None:
    """Undo `cut`."""
    Lab.find(lab_of(host)).mend(host)


def _show(lab: Lab) -> None:
    limit = "a limit for each host" if lab.limited else "not limited: no cgroup cpu"
    if overbooked(lab.hosts):
        limit = "more than the machine has, so the speed of a host depends on the others"
    table = Table(
        title=f"lab {lab.name} on {lab.interface}, this machine is {lab.head_address}",
        caption=f"cores: {limit}; TCP: {lab.congestion_control}",
    )
    for title in ("host", "address", "cores", "on", "rate out / in", "link", "sshd", "processes"):
        table.add_column(title)
    for host in lab.hosts:
        try:
            seen = lab.look(host)
        except RefusalError as error:
            table.add_row(host.name, host.address, f"broken: {error.received}")
            continue
        table.add_row(
            host.name,
            host.address,
            f"{host.cores:.2g}",
            ",".join(map(str, host.affinity)),
            f"{format_rate(seen.out_bits_per_s)} / {format_rate(seen.in_bits_per_s)}",
            "cut" if seen.cut else "up",
            "yes" if seen.sshd else "dead",
            str(seen.processes),
        )
    Console().print(table)
