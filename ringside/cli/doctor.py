"""`ringside doctor`."""

import itertools
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from launch.flags import with_flags
from ringside.cli.common import placement_from
from ringside.comparison.arms import default_backends, parse_arms
from ringside.comparison.available_arms import ask
from ringside.comparison.checkup import clock, hosts, limits, ports, steps
from ringside.lab.lab import left_behind
from ringside_core.readings.machine import machine_facts
from ringside_core.specs import Placement, RefusalError
from ringside_core.text import byte_size


@with_flags(placement=placement_from)
def command(
    *,
    placement: Placement,
    run: Annotated[
        bool,
        typer.Option(
            "--run",
            help="Look at limits, clock and ports too, and train five steps under each backend.",
        ),
    ] = False,
) -> None:
    """Show each backend with `ready`, or why it cannot run here.

    With --run it takes up to two minutes; with --hostfile too, it asks each host and measures the
    links. The exit code is 1 if something is to be done.

    Example: ringside doctor --run
    """
    console = Console()
    if placement.names and not run:
        raise RefusalError(
            "--hostfile is for --run.", received="--hostfile alone", advice="Add --run."
        )
    if run:
        _look(console, placement)
        return
    arms = parse_arms(default_backends(), "1")
    with console.status("looking at this machine…"):
        answer = ask(arms)
    table = Table("backend", "here")
    for arm, obstacle in zip(arms, answer["obstacles"], strict=True):
        table.add_row(
            arm.group, "[green]ready[/]" if obstacle is None else f"[yellow]{obstacle}[/]"
        )
    console.print(table)
    facts = machine_facts()
    console.print(
        f"{facts.cores} cores ({facts.cpu_model}), {byte_size(facts.memory_bytes)}, "
        f"GPUs: {answer['gpus']}, Python {facts.python}"
    )
    console.print(", ".join(f"{k} {v}" for k, v in facts.packages.items()), highlight=False)
    for name, left in left_behind().items():
        console.print(
            f"[yellow]lab {name} is not up, and has left behind: {', '.join(left)}[/]. "
            f"Remove it: ringside lab down --name {name}"
        )


def _look(console: Console, placement: Placement) -> None:
    """Print each finding when it is there; exit code 1 if one is not good."""
    found = []
    for one in itertools.chain(
        limits(), [clock()], [ports()], hosts(console, placement, Path("runs")), steps()
    ):
        found.append(one)
        color = {"good": "green", "to do": "yellow", "absent": "dim"}[one.mark]
        line = f"[{color}]{one.mark:<7}[/] {one.what:<26} {escape(one.said)}"
        console.print(line, highlight=False, soft_wrap=True)
    if any(one.mark == "to do" for one in found):
        raise typer.Exit(1)
