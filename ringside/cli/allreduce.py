"""`ringside allreduce`."""

import shlex
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

import psutil
import typer
from rich.console import Console

from launch import Site
from launch.remote.host_checks import check_hosts
from ringside.cli.common import (
    HostfileFlag,
    InterfaceFlag,
    OutputFolder,
    finite,
    new_folder,
    placement_from,
)
from ringside.cli.stopping import telling
from ringside.collectives.link import measure_links
from ringside.collectives.measurement import Place, filled, measure_stacks
from ringside.collectives.ranks import MOST_RANKS
from ringside.collectives.request import (
    BUDGET_S,
    DEFAULT_SIZES,
    LONGEST_S,
    check_memory,
    fitting,
    parse_sizes,
)
from ringside.collectives.stacks import parse_stacks
from ringside.collectives.store import keep, why_not_kept
from ringside.report.sections.communication import timings_table
from ringside.report.terminal import rich_table
from ringside.report.words import outcome_of, stack_name
from ringside.stats.links import link_words, slowest_bits_per_s
from ringside_core.specs import Placement, write_whole
from ringside_core.text import exact_byte_size

NOTE = (
    "Time of a sum of float32 arrays: mean over ranks and repetitions, with its 95 % interval over "
    "the n repetitions of this run. Bus bandwidth: size / time × 2(ranks−1)/ranks, as nccl-tests "
    "defines it (1 GB = 1e9 bytes). Of the link: the shortest time that the slowest link allows ÷ "
    "the mean; red: above 105 %, the link has changed. Wrong: elements that differ from the exact "
    "sum. Bare MPI allocates its result before the timing, the others within it, as in training."
)


def command(
    replicas: Annotated[
        int | None,
        typer.Option(
            min=2, max=MOST_RANKS, help="Number of ranks. Default: 2, or all slots of the hostfile."
        ),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            help=f"Separated by commas. Default: {DEFAULT_SIZES}; between hosts, up to what the "
            f"link carries in {LONGEST_S:.0f} s."
        ),
    ] = None,
    stacks: Annotated[
        str,
        typer.Option(
            help="Names, separated by commas; options after colons: "
            '"horovod gloo,horovod mpi:btl_tcp_flags=9".'
        ),
    ] = "all",
    seconds: Annotated[
        float,
        typer.Option(
            min=0.01, callback=finite, help="Most seconds for one size; at least 5 repetitions."
        ),
    ] = BUDGET_S,
    hostfile: HostfileFlag = None,
    interface: InterfaceFlag = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the folder. Default: allreduce and time.")
    ] = None,
    output: OutputFolder = Path("runs"),
) -> None:
    """Time the all-reduce of every stack that can run here, and check each result.

    The stacks run one after the other, each in fresh processes, every rank on its own cores. The
    first repetitions are checked but not counted. Between hosts, each link is measured first.
    Later comparisons on the same hosts use the last measurement that has all stacks, at least four
    sizes, and no more ranks than cores.

    Example: ringside allreduce --replicas 2
    """
    console = Console(width=None if sys.stdout.isatty() else 120)

    def say(text: str) -> None:
        console.print(text, soft_wrap=True, highlight=False, markup=False)

    placement = placement_from(hostfile, interface)
    slots = sum(host.slots for host in placement.hosts or ())
    ranks = replicas or min(max(2, slots), MOST_RANKS)
    names = parse_stacks(stacks)
    chosen = parse_sizes(sizes or DEFAULT_SIZES, ranks=ranks)
    with console.status("looking at the hosts and their links…"):
        place = _place(ranks, placement, output)
    for link in place.links:
        say(f"{link.sender} → {link.receiver} {link_words(link)} by plain TCP")
    slowest = slowest_bits_per_s(place.links)
    if sizes is None and slowest and (fit := fitting(chosen, slowest)) != chosen:
        chosen = fit
        largest = exact_byte_size(max(fit))
        say(f"up to {largest}: what the slowest link carries in {LONGEST_S:.0f} s (or use --sizes)")
    if not place.hosts:
        check_memory(chosen, ranks=ranks, available_bytes=psutil.virtual_memory().available)
    folder = new_folder(output, name or f"allreduce-{datetime.now():%Y%m%d-%H%M%S}")
    document = folder / "communication.json"
    typed = shlex.join(["ringside", *sys.argv[1:]])
    measured = measure_stacks(names, chosen, place, seconds, folder=folder, command=typed)
    with telling(console, f"done so far: {document}"), console.status("timing…"):
        for communication in measured:
            # Written after each stack, so that a later failure loses nothing.
            write_whole(document, communication.to_json())
            stack = communication.stacks[-1]
            done = stack.outcome.completed
            what = f"in {stack.wall_s:.0f} s" if done else outcome_of(stack.outcome)
            say(f"{stack_name(stack.stack):<20} {what}")
    title = f"{ranks} ranks on {', '.join(dict.fromkeys(place.hosts)) or 'this machine'}"
    timed = tuple(stack for stack in communication.stacks if stack.timings)
    if timed:
        table = timings_table(communication.replace(stacks=timed))
        console.print(rich_table(table, title=title, notes_beside=True))
    console.print(NOTE, highlight=False)
    say(f"every sample: {document}")
    if why_not := why_not_kept(communication, usable_cores=place.cores):
        say(f"not kept for later comparisons: {why_not}")
    else:
        keep(communication, place.facts)
    if not communication.passed:
        raise typer.Exit(1)


def _place(ranks: int, placement: Placement, output: Path) -> Place:
    """Where the ranks run: hosts that are ready, and the rates of their links."""
    if placement.hosts is None:
        return Place(ranks)
    placement, site = filled(placement, ranks), Site.here()
    spec = Place(ranks, placement).spec_of("mpi")  # a rank in each slot
    facts = check_hosts(placement, site, folder=output, specs=[spec], may_share_cores=False)
    addresses = {name: facts[name].address for name in placement.names}
    return Place(ranks, placement, facts, measure_links(addresses, site))
