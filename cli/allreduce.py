"""`ringside allreduce`."""

import shlex
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cli.arms import FolderName, OutputFolder
from cli.folders import new_folder
from collectives.pattern import check_ranks
from collectives.request import BUDGET_S
from collectives.run import measure_stacks, samples_csv
from collectives.sizes import parse_sizes, size_text
from collectives.stacks import parse_stacks
from collectives.store import keep
from measure.collectives import (
    algorithm_bandwidth_gb_s,
    bus_bandwidth_gb_s,
    fit_cost_model,
    times_of,
)
from specs import Communication, RefusalError, StackTimings, Timing, write_whole

NOTE = (
    "float32; input and result are separate arrays (MPI's broadcast has one). Times: the median of "
    "each rank over its repetitions, from a barrier to its return; then least, mean and most over "
    "the ranks. algbw and busbw: GB/s (1e9 bytes) as nccl-tests defines them, of the mean. n: "
    "repetitions. #wrong: elements unlike the closed form, over all ranks and repetitions. "
    "push/pull: a worker reads a variable from its server and adds a gradient to it."
)


def command(
    replicas: Annotated[int, typer.Option(min=1, help="Ranks, all on this machine.")] = 2,
    sizes: Annotated[
        str, typer.Option(help="Ranges (each 4 times the one before) and sizes, commas between.")
    ] = "4KiB-256MiB",
    stacks: Annotated[
        str, typer.Option(help='Names with commas between, such as "mpi,horovod gloo".')
    ] = "all",
    repetitions: Annotated[
        int, typer.Option(min=1, help="At most, of each operation at each size.")
    ] = 200,
    seconds: Annotated[
        float, typer.Option(min=0.01, help="At most, for one operation at one size.")
    ] = BUDGET_S,
    name: FolderName = None,
    output: OutputFolder = Path("runs"),
) -> None:
    """Time all-reduce, broadcast and push/pull of every stack that can run here, and check them.

    One stack after the other, each in fresh processes, every rank pinned to its share of the cores.
    The first repetitions (two, or a tenth) are checked and not counted; of large arrays there are
    fewer, but five.
    """
    console = Console(width=None if sys.stdout.isatty() else 120)
    if replicas < 2:
        raise RefusalError(
            "A collective needs two ranks.", received=f"--replicas {replicas}", advice="Use 2."
        )
    check_ranks(replicas)
    names = parse_stacks(stacks)
    chosen = parse_sizes(sizes, ranks=replicas)
    folder = new_folder(output, name or f"allreduce-{datetime.now():%Y%m%d-%H%M%S}")
    began = time.monotonic()

    with console.status("") as status:
        communication = measure_stacks(
            names,
            chosen,
            ranks=replicas,
            most=repetitions,
            budget_s=seconds,
            folder=folder,
            command=shlex.join(["ringside", *sys.argv[1:]]),
            on_start=lambda stack: status.update(f"timing {stack}…"),
            on_end=lambda stack: _tell(stack, console),
        )
    _write(communication, folder, console)
    console.print(render(communication))
    console.print(NOTE, highlight=False)
    console.print(render_models(communication))
    console.print(
        f"{time.monotonic() - began:.0f} s; every sample: {folder}", soft_wrap=True, highlight=False
    )
    if not communication.passed:
        raise typer.Exit(1)


def _tell(stack: StackTimings, console: Console) -> None:
    """One line, when a stack is through."""
    if stack.outcome.kind == "refused":
        console.print(f"[yellow]not run[/] {stack.stack}: {escape(stack.outcome.reason)}")
    elif not stack.outcome.completed:
        console.print(f"[red]failed[/] {stack.stack}: {escape(str(stack.outcome))}")
    else:
        console.print(f"{stack.stack:<20} in {stack.wall_s:.0f} s", highlight=False)


def _write(communication: Communication, folder: Path, console: Console) -> None:
    write_whole(folder / "communication.json", communication.to_json())
    write_whole(folder / "samples.csv", samples_csv(communication))
    if not communication.passed:
        return  # a later comparison must not predict from it
    try:
        keep(communication)
    except OSError as error:
        console.print(f"not kept for later commands: {error}", highlight=False)


def render(communication: Communication) -> Table:
    """A line for each stack, operation and size; a stack that did not run says why."""
    table = Table(
        title=f"{communication.num_ranks} ranks on {communication.machine.host}", box=None
    )
    table.add_column("stack", no_wrap=True)
    table.add_column("operation")
    for heading in ("size", "count", "min ms", "avg ms", "max ms", "algbw", "busbw", "n", "#wrong"):
        table.add_column(heading, justify="right", no_wrap=True)
    for stack in communication.stacks:
        if not stack.timings:
            table.add_row(
                stack.stack,
                "not run: see above" if stack.outcome.kind == "refused" else "failed: see above",
            )
        for timing in stack.timings:
            table.add_row(stack.stack, *_cells(timing))
        table.add_section()
    return table


def _cells(timing: Timing) -> tuple[str, ...]:
    times = times_of(timing)
    size = timing.size_bytes
    algorithm = algorithm_bandwidth_gb_s(size_bytes=size, seconds=times.average_s)
    bus = bus_bandwidth_gb_s(timing)
    wrong = f"[red]{timing.wrong:,}[/]" if timing.wrong else "0"
    return (
        timing.operation.replace("_", "/"),
        size_text(size),
        f"{timing.count:,}",
        *(f"{1000 * s:.3f}" for s in (times.shortest_s, times.average_s, times.longest_s)),
        f"{algorithm:.3f}",
        "–" if bus is None else f"{bus:.3f}",
        str(len(timing.seconds)),
        wrong,
    )


def render_models(communication: Communication) -> Table:
    """α, β and γ of each stack and operation, with their errors."""
    table = Table(title="latency α, seconds per byte β and γ, fitted", box=None)
    table.add_column("stack", no_wrap=True)
    table.add_column("operation")
    for heading in ("α µs", "1/β GB/s", "1/γ GB/s", "median error", "largest"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for stack in communication.stacks:
        for operation in dict.fromkeys(timing.operation for timing in stack.timings):
            timings = [t for t in stack.timings if t.operation == operation]
            if len(timings) < 2:
                continue  # a line through one point says nothing
            model = fit_cost_model(timings, add_seconds_per_byte=communication.add_seconds_per_byte)
            table.add_row(
                stack.stack,
                operation.replace("_", "/"),
                f"{1e6 * model.alpha_s:.1f}",
                _rate(model.beta_s_per_byte),
                _rate(model.gamma_s_per_byte),
                f"{model.relative_error:.0%}",
                f"{model.largest_relative_error:.0%}",
                model.reason,
            )
    return table


def _rate(seconds_per_byte: float | None) -> str:
    return f"{1e-9 / seconds_per_byte:.2f}" if seconds_per_byte else "–"
