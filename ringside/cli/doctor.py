"""`ringside doctor`."""

from rich.console import Console
from rich.table import Table

from ringside.compare.arms import default_backends, parse_arms
from ringside.compare.available_arms import ask
from ringside.lab.lab import left_behind
from ringside_core.readings.machine import machine_facts
from ringside_core.text import byte_size


def command() -> None:
    """Show each backend with `ready`, or why it cannot run here.

    Example: ringside doctor
    """
    console = Console()
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
