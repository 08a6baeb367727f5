"""`ringside allreduce`."""

import math
import os
import shlex
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Annotated

import psutil
import typer
from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table

from cli.arms import OutputFolder
from cli.folders import new_folder
from cli.stopping import telling
from collectives.pattern import check_ranks
from collectives.request import BUDGET_S
from collectives.run import measure_stacks, samples_csv
from collectives.sizes import check_memory, parse_sizes, size_text
from collectives.stacks import parse_stacks
from collectives.store import keep, why_not_kept
from measure.collectives import (
    algorithm_bandwidth_gb_s,
    bus_bandwidth_gb_s,
    fit_cost_model,
    times_of,
)
from report.words import stack_name
from specs import Communication, Outcome, RefusalError, StackTimings, Timing, write_whole

NOTE = (
    "float32; input and result are separate arrays (MPI's broadcast has one). The result of bare "
    "MPI has its place in memory beforehand; TensorFlow and Horovod allocate theirs within the "
    "time, as in a training. Times: the median of each rank over its repetitions, from a barrier "
    "to its return; then least, mean and most over the ranks. algbw and busbw: GB/s (1e9 bytes) "
    "as nccl-tests defines them, of the mean. n: repetitions. #wrong: elements unlike the closed "
    "form, over all ranks and repetitions. push/pull: a worker reads a variable from its server, "
    "then adds a gradient to it."
)

DOCUMENT = "communication.json"


def command(
    replicas: Annotated[int, typer.Option(min=2, help="Ranks, all on this machine.")] = 2,
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
    name: Annotated[
        str | None, typer.Option(help="Of the folder. Default: allreduce, time.")
    ] = None,
    output: OutputFolder = Path("runs"),
) -> None:
    """Time all-reduce, broadcast and push/pull of every stack that can run here, and check them.

    One stack after the other, each in fresh processes, every rank pinned to its share of the cores.
    The first repetitions (two, or a tenth) are checked and not counted; of large arrays there are
    fewer, but five. Later comparisons predict from the last measurement of all stacks at four
    sizes or more, with no more ranks than cores.
    """
    console = Console(width=None if sys.stdout.isatty() else 120)
    if not math.isfinite(seconds):
        raise RefusalError("--seconds must be a number of seconds.", received=seconds)
    check_ranks(replicas)
    names = parse_stacks(stacks)
    chosen = parse_sizes(sizes, ranks=replicas)
    check_memory(chosen, ranks=replicas, available_bytes=psutil.virtual_memory().available)
    folder = new_folder(output, name or f"allreduce-{datetime.now():%Y%m%d-%H%M%S}")
    began = time.monotonic()
    usable_cores = len(os.sched_getaffinity(0))
    if replicas > usable_cores:
        console.print(
            f"more ranks ({replicas}) than usable cores ({usable_cores}): they wait for each "
            "other, and times are longer than the stacks need",
            highlight=False,
        )

    with telling(console, lambda: _what_is_there(folder)), console.status("") as status:

        def through(communication: Communication) -> None:
            _write(communication, folder)
            _tell(communication.stacks[-1], console)

        communication = measure_stacks(
            names,
            chosen,
            ranks=replicas,
            most=repetitions,
            budget_s=seconds,
            folder=folder,
            command=shlex.join(["ringside", *sys.argv[1:]]),
            on_start=lambda stack: status.update(f"timing {stack}…"),
            on_end=through,
        )
    _keep(communication, usable_cores, console)
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
    what = f"in {stack.wall_s:.0f} s" if stack.outcome.completed else _why(stack.outcome)
    console.print(f"{stack_name(stack.stack):<20} {what}", highlight=False)


def _write(communication: Communication, folder: Path) -> None:
    """After each stack: what was measured is not lost with the stacks that follow."""
    write_whole(folder / DOCUMENT, communication.to_json())
    write_whole(folder / "samples.csv", samples_csv(communication))


def _what_is_there(folder: Path) -> str:
    if not (folder / DOCUMENT).exists():
        return f"no stack is through: {folder}"
    return f"the stacks that are through: {folder / DOCUMENT}, samples.csv"


def _keep(communication: Communication, usable_cores: int, console: Console) -> None:
    """Keep it for later comparisons, or say in one line why not."""
    why_not = why_not_kept(communication, usable_cores=usable_cores)
    if not why_not:
        try:
            keep(communication)
            return
        except OSError as error:
            why_not = str(error)
    console.print(
        f"not kept for later comparisons: {why_not}", soft_wrap=True, highlight=False, markup=False
    )


def render(communication: Communication) -> Group:
    """A line for each stack, operation and size; below, why the others have none."""
    return Group(_render_times(communication), _render_absent(communication))


def _render_absent(communication: Communication) -> Table:
    """In a table of its own: a reason is longer than a cell among the figures is wide."""
    table = Table(box=None, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for stack in communication.stacks:
        if not stack.outcome.completed:
            first, *more = _why(stack.outcome).splitlines()
            table.add_row(stack_name(stack.stack), first + (" … (whole above)" if more else ""))
    return table


def _why(outcome: Outcome) -> str:
    if outcome.kind == "refused":
        return f"[yellow]not run:[/] {escape(outcome.reason)}"
    return f"[red]{escape(str(outcome))}[/]"


def _render_times(communication: Communication) -> Table:
    table = Table(
        title=f"{communication.num_ranks} ranks on {communication.machine.host}", box=None
    )
    table.add_column("stack", no_wrap=True)
    table.add_column("operation")
    for heading in ("size", "count", "min ms", "avg ms", "max ms", "algbw", "busbw", "n", "#wrong"):
        table.add_column(heading, justify="right", no_wrap=True)
    for stack in communication.stacks:
        for timing in stack.timings:
            table.add_row(stack_name(stack.stack), *_cells(timing))
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
                stack_name(stack.stack),
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
