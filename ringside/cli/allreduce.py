"""`ringside allreduce`."""

import dataclasses
import math
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

from launch import Site
from launch.remote.host_checks import check_hosts
from ringside.cli.common import (
    HostfileFlag,
    InterfaceFlag,
    OutputFolder,
    OversubscribeFlag,
    new_folder,
    placement_from,
)
from ringside.cli.stopping import telling
from ringside.collectives.link import measure_links
from ringside.collectives.pattern import check_ranks
from ringside.collectives.place import Place, filled
from ringside.collectives.request import (
    BUDGET_S,
    DEFAULT_SIZES,
    LONGEST_S,
    check_memory,
    fitting,
    parse_sizes,
)
from ringside.collectives.run import measure_stacks, samples_csv
from ringside.collectives.stacks import parse_stacks
from ringside.collectives.store import keep, why_not_kept
from ringside.report.words import stack_name
from ringside.stats.collectives import (
    algorithm_bandwidth_gb_s,
    bus_bandwidth_gb_s,
    fit_cost_model,
    times_of,
)
from ringside.stats.links import IMPOSSIBLE, link_words, share_of_link, slowest_bits_per_s
from ringside_core.specs import (
    Communication,
    Link,
    Outcome,
    Placement,
    RefusalError,
    StackTimings,
    Timing,
    write_whole,
)
from ringside_core.text import exact_byte_size

NOTE = (
    "float32; input and result are separate arrays (MPI's broadcast has one array). Bare MPI "
    "allocates its result before the timing; TensorFlow and Horovod allocate theirs within it, as "
    "in training. Times, from a barrier to the return: mean, median and 99th percentile (of 100 or "
    "more) over the repetitions of each rank, then the mean of the ranks. A rare stall is in the "
    "mean and hidden in the median. algbw and busbw: GB/s (1e9 bytes) of the mean, as nccl-tests "
    "defines them. n: repetitions. #wrong: elements that differ from the expected "
    "value, over all ranks and repetitions. push/pull: a worker reads a variable from its server, "
    "then adds a gradient to it; nccl-tests defines no busbw for that."
)
NOTE_ON_LINKS = (
    "of link: the shortest time that the slowest link allows any stack (by the plain TCP transfer) "
    "÷ the median time of the slowest rank; busbw uses the mean instead. Buffers can make it more "
    "than 100 %. More than 105 % is marked: the link then differed from the measured one. "
    "Parameter servers: the last host has the server, the hosts before it the workers."
)

DOCUMENT = "communication.json"


def command(
    replicas: Annotated[
        int | None,
        typer.Option(min=2, help="Number of ranks. Default: 2, or every slot of the hostfile."),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            help="Sizes and ranges (in steps of 4 times), separated by commas. Default: "
            f"{DEFAULT_SIZES}; between hosts, up to what the link carries in "
            f"{LONGEST_S:.0f} s."
        ),
    ] = None,
    stacks: Annotated[
        str,
        typer.Option(
            help="Names, separated by commas; options after colons: "
            '"horovod gloo,horovod mpi:btl_tcp_flags=9".'
        ),
    ] = "all",
    repetitions: Annotated[
        int, typer.Option(min=1, help="Most repetitions of one operation at one size.")
    ] = 200,
    seconds: Annotated[
        float, typer.Option(min=0.01, help="Most seconds for one operation at one size.")
    ] = BUDGET_S,
    hostfile: HostfileFlag = None,
    interface: InterfaceFlag = None,
    oversubscribe: OversubscribeFlag = False,
    name: Annotated[
        str | None, typer.Option(help="Name of the folder. Default: allreduce and time.")
    ] = None,
    output: OutputFolder = Path("runs"),
) -> None:
    """Time all-reduce, broadcast and push/pull of every stack that can run here, and check them.

    The stacks run one after the other, each in fresh processes. Every rank is pinned to its share
    of the cores. The first repetitions (two, or a tenth) are checked but not counted. Large arrays
    get fewer repetitions, at least five. Between hosts, each link is measured first by a plain
    transfer. Later comparisons on the same hosts use the last measurement that has all stacks, at
    least four sizes, and no more ranks than cores.
    """
    console = Console(width=None if sys.stdout.isatty() else 120)
    if not math.isfinite(seconds):
        raise RefusalError("--seconds must be a finite number of seconds.", received=seconds)
    placement = placement_from(hostfile, interface, oversubscribe=oversubscribe)
    ranks = replicas or max(2, sum(host.slots for host in placement.hosts or ()))
    check_ranks(ranks)
    names = parse_stacks(stacks)
    chosen = parse_sizes(sizes or DEFAULT_SIZES, ranks=ranks)
    place = _place(ranks, placement, output, console)
    if sizes is None:
        chosen = _fitting(chosen, place, console)
    if not place.hosts:
        check_memory(chosen, ranks=ranks, available_bytes=psutil.virtual_memory().available)
    folder = new_folder(output, name or f"allreduce-{datetime.now():%Y%m%d-%H%M%S}")
    began = time.monotonic()

    with telling(console, lambda: _what_is_there(folder)), console.status("") as status:

        def through(communication: Communication) -> None:
            _write(communication, folder)
            _tell(communication.stacks[-1], console)

        communication = measure_stacks(
            names,
            chosen,
            place=place,
            most=repetitions,
            budget_s=seconds,
            folder=folder,
            command=shlex.join(["ringside", *sys.argv[1:]]),
            on_start=lambda stack: status.update(f"timing {stack}…"),
            on_end=through,
        )
    _keep(communication, place, console)
    console.print(render(communication))
    console.print(NOTE, highlight=False)
    if communication.links:
        console.print(NOTE_ON_LINKS, highlight=False)
    console.print(render_models(communication))
    console.print(
        f"{time.monotonic() - began:.0f} s; every sample: {folder}", soft_wrap=True, highlight=False
    )
    if not communication.passed:
        raise typer.Exit(1)


def _place(ranks: int, placement: Placement, output: Path, console: Console) -> Place:
    """Where the ranks run: hosts that are ready, and the rates of their links."""
    if placement.hosts is None:
        place = Place.here(ranks)
        if ranks > place.cores:
            console.print(
                f"more ranks ({ranks}) than usable cores ({place.cores}): ranks wait for each "
                "other, so the times are too long",
                highlight=False,
            )
        return place
    placement, site = filled(placement, ranks), Site.here()
    with console.status("looking at the hosts…"):
        spec, _ = Place(ranks, placement, cores=1).of_stack("mpi")  # a rank in each slot
        facts = check_hosts(placement, site, folder=output, specs=[spec])
    place = Place.on_hosts(ranks, placement, facts)
    with console.status("measuring the links…"):
        place = dataclasses.replace(place, links=measure_links(placement, site))
    for link in place.links:
        console.print(f"{link.sender} → {link.receiver} {link_text(link)}", highlight=False)
    return place


def link_text(link: Link) -> str:
    """`0.957 Gbit/s (cubic) by plain TCP`."""
    tool = "plain TCP" if link.tool == "tcp" else link.tool
    return f"{link_words(link)} by {tool}"


def _fitting(sizes: tuple[int, ...], place: Place, console: Console) -> tuple[int, ...]:
    """The sizes that the slowest link carries in reasonable time; says so if some are left out."""
    bits_per_s = slowest_bits_per_s(place.links)
    if bits_per_s is None:
        return sizes
    fit = fitting(sizes, ranks=place.ranks, bits_per_s=bits_per_s)
    if fit != sizes:
        console.print(
            f"sizes up to {exact_byte_size(max(fit))}: a larger one would take more than "
            f"{LONGEST_S:.0f} s on the slowest link (give --sizes to time it anyway)",
            highlight=False,
        )
    return fit


def _tell(stack: StackTimings, console: Console) -> None:
    """Print one line when a stack is done."""
    what = f"in {stack.wall_s:.0f} s" if stack.outcome.completed else _why(stack.outcome)
    console.print(f"{stack_name(stack.stack):<20} {what}", highlight=False)


def _write(communication: Communication, folder: Path) -> None:
    """Write after each stack, so that a later failure loses nothing."""
    write_whole(folder / DOCUMENT, communication.to_json())
    write_whole(folder / "samples.csv", samples_csv(communication))


def _what_is_there(folder: Path) -> str:
    if not (folder / DOCUMENT).exists():
        return f"no stack is done: {folder}"
    return f"the stacks that are done: {folder / DOCUMENT}, samples.csv"


def _keep(communication: Communication, place: Place, console: Console) -> None:
    """Keep the measurement for later comparisons, or print why not."""
    why_not = why_not_kept(communication, usable_cores=place.cores)
    if not why_not:
        try:
            keep(communication, addresses=place.addresses, cores=place.cores_of_hosts)
            return
        except OSError as error:
            why_not = str(error)
    console.print(
        f"not kept for later comparisons: {why_not}", soft_wrap=True, highlight=False, markup=False
    )


def render(communication: Communication) -> Group:
    """A line for each stack, operation and size; below, why other stacks have none."""
    return Group(_render_times(communication), _render_absent(communication))


def _name(stack: StackTimings) -> str:
    """A stack and its settings, one on each line: on one line they are too wide for the table."""
    return "\n".join(stack_name(stack.stack).split(":"))


def _render_absent(communication: Communication) -> Table:
    """A table of its own: a reason is too long for a cell among the figures."""
    table = Table(box=None, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for stack in communication.stacks:
        if not stack.outcome.completed:
            first, *more = _why(stack.outcome).splitlines()
            table.add_row(_name(stack), first + (" … (whole above)" if more else ""))
    return table


def _why(outcome: Outcome) -> str:
    if outcome.kind == "refused":
        return f"[yellow]not run:[/] {escape(outcome.reason)}"
    return f"[red]{escape(str(outcome))}[/]"


def _render_times(communication: Communication) -> Table:
    where = ", ".join(dict.fromkeys(communication.hosts)) or communication.machine.host
    table = Table(title=f"{communication.num_ranks} ranks on {where}", box=None)
    table.add_column("stack", overflow="fold", min_width=19, max_width=26)
    table.add_column("operation")
    headings = ["size", "count", "mean ms", "median", "p99", "algbw", "busbw"]
    bits_per_s = slowest_bits_per_s(communication.links)
    headings += ["of link"] if bits_per_s else []
    for heading in (*headings, "n", "#wrong"):
        table.add_column(heading, justify="right", no_wrap=True)
    for stack in communication.stacks:
        for timing in stack.timings:
            *cells, count, wrong = _cells(timing)
            if bits_per_s:
                hosts = len(set(communication.hosts))
                cells.append(_share(share_of_link(timing, num_hosts=hosts, bits_per_s=bits_per_s)))
            table.add_row(_name(stack), *cells, count, wrong)
    return table


def _share(share: float) -> str:
    return f"[red]{share:.0%} ?[/]" if share > IMPOSSIBLE else f"{share:.0%}"


def _cells(timing: Timing) -> tuple[str, ...]:
    times = times_of(timing)
    size = timing.size_bytes
    algorithm = algorithm_bandwidth_gb_s(size_bytes=size, seconds=times.mean_s)
    bus = bus_bandwidth_gb_s(timing)
    wrong = f"[red]{timing.wrong:,}[/]" if timing.wrong else "0"
    return (
        timing.operation.replace("_", "/"),
        exact_byte_size(size),
        f"{timing.count:,}",
        f"{1000 * times.mean_s:.3f}",
        f"{1000 * times.median_s:.3f}",
        "–" if times.p99_s is None else f"{1000 * times.p99_s:.3f}",
        f"{algorithm:.3f}",
        "–" if bus is None else f"{bus:.3f}",
        str(len(timing.seconds)),
        wrong,
    )


def render_models(communication: Communication) -> Table:
    """α, β and γ of each stack and operation, with the errors of the fit."""
    table = Table(title="latency α, seconds per byte β and γ, fitted", box=None)
    table.add_column("stack", overflow="fold", min_width=19, max_width=26)
    table.add_column("operation")
    for heading in ("α µs", "1/β GB/s", "1/γ GB/s", "median error", "largest"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for stack in communication.stacks:
        for operation in dict.fromkeys(timing.operation for timing in stack.timings):
            timings = [t for t in stack.timings if t.operation == operation]
            if len(timings) < 2:
                continue  # one point fits any line
            model = fit_cost_model(timings, add_seconds_per_byte=communication.add_seconds_per_byte)
            table.add_row(
                _name(stack),
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
