"""`ringside doctor`."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ringside.compare.arms import default_backends, parse_arms
from ringside.compare.available_arms import ask
from ringside.lab.lab import left_behind
from ringside.verify.matrix import OF_LOOP, WAYS, rows, tried
from ringside_core.readings.machine import machine_facts
from ringside_core.text import byte_size


def command(
    *,
    matrix: Annotated[
        bool,
        typer.Option(
            help="Train a small program in each way under each backend and both Keras, and say "
            "what is right, wrong or refused (minutes)."
        ),
    ] = False,
) -> None:
    """Show each backend with `ready`, or why it cannot run here."""
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
    if matrix:
        obstacles = zip(arms, answer["obstacles"], strict=True)
        able = [arm.backend for arm, obstacle in obstacles if obstacle is None]
        _print_matrix(console, list(dict.fromkeys(able)))


def _print_matrix(console: Console, backends: list[str]) -> None:
    """A Markdown table, so that docs/matrix.md can hold it, and the reasons below it."""
    with tempfile.TemporaryDirectory() as folder, console.status("training each cell…"):
        found = tried(rows(backends), Path(folder))
    plain = Console(soft_wrap=True, highlight=False, markup=False)
    columns = [*WAYS, *OF_LOOP]
    plain.print(f"\n| Keras | backend | {' | '.join(columns)} |")
    plain.print(f"|{'---|' * (2 + len(columns))}")
    reasons: dict[str, int] = {}
    for row, cells in found.items():
        told = []
        for way in columns:
            text = cells.get(way, "–")
            word, _, reason = text.partition(": ")
            if reason:
                text = f"{word} ({reasons.setdefault(reason, len(reasons) + 1)})"
            told.append(text)
        keras = f"{row.keras}, as shipped" if row.as_shipped else str(row.keras)
        if row.against:
            keras += f", against {row.against}"
        plain.print(f"| {keras} | {row.backend} ×{row.replicas} | {' | '.join(told)} |")
    plain.print()
    for reason, number in reasons.items():
        plain.print(f"{number}. {reason}")
