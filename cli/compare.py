"""`ringside compare`."""

import os
import shlex
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from cli.progress import ComparisonProgress
from cli.surroundings import alone
from compare.arms import DEFAULT_BACKENDS, arm_spec, parse_arms
from compare.experiment import run_experiment
from compare.preflight import preflight
from launch.flags import with_spec_flags
from specs import Arm, RefusalError, Resources, RunSpec


@with_spec_flags(
    alone,
    without=("backend", "replicas", "option", "resume_from", "save"),
    backend="serial",
    save="record",
)
def command(
    *,
    spec: RunSpec,
    backends: Annotated[
        str, typer.Option(help="Names with commas between; options after colons.")
    ] = DEFAULT_BACKENDS,
    replicas: Annotated[str, typer.Option(help="Numbers with commas between.")] = "1,2",
    rounds: Annotated[int, typer.Option(min=1, help="Passes over all arms.")] = 3,
    name: Annotated[
        str | None, typer.Option(help="Of the folder. Default: workload, time.")
    ] = None,
    output: Annotated[Path, typer.Option(help="Folder in which it is made.")] = Path("runs"),
    deadline: Annotated[
        float, typer.Option(min=1, help="Seconds without progress after which a run is hung.")
    ] = 120.0,
    order_seed: Annotated[int, typer.Option(min=0, help="Of the order of the runs.")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the arms and end.")] = False,
) -> None:
    """Train the same model under every backend that can run here, and write a report.

    --intra-op-threads and --inter-op-threads are those of one replica.
    """
    console = Console(width=None if sys.stdout.isatty() else 120)
    arms = parse_arms(backends, replicas)
    base = spec.replace(resources=_shared_out(spec.resources, arms))
    for arm in arms:
        arm_spec(base, arm)  # refuses a batch that does not divide, before anything is started
    if dry_run:
        for arm in arms:
            console.print(arm.label)
        return
    folder = _new_folder(output, name or _default_name(spec))
    with console.status("looking at this machine…"):
        able, unable = preflight(arms, base)
    for reason in unable:
        console.print(f"[yellow]not run[/] {reason.label}: {reason.reason}", highlight=False)
    began = time.monotonic()
    with ComparisonProgress(console, total_runs=len(able) * rounds) as progress:
        comparison = run_experiment(
            base,
            able,
            unable,
            folder=folder,
            name=folder.name,
            command=shlex.join(["ringside", *sys.argv[1:]]),
            rounds=rounds,
            seed=order_seed,
            deadline_s=deadline,
            on_start=progress.start,
            on_progress=progress.step,
            on_end=progress.end,
        )
    from report.table import render_table
    from report.write import write_report  # matplotlib: only now

    page = write_report(comparison, folder)
    console.print(render_table(comparison))
    minutes = (time.monotonic() - began) / 60
    failed = sum(not run.outcome.completed for run in comparison.runs)
    console.print(f"{len(comparison.runs)} runs, {failed} failed, {minutes:.1f} minutes")
    console.print(f"report: {page}", soft_wrap=True, highlight=False)
    if failed:
        raise typer.Exit(1)


def _shared_out(resources: Resources, arms: tuple[Arm, ...]) -> Resources:
    """Cores for each replica so that the largest arm has them all; the same for every arm.

    A one-replica arm thus has one replica's share of the machine, not all of it: else scaling would
    compare one process on all cores with several on the same ones (STACK.md, Threads).
    """
    cores = len(os.sched_getaffinity(0))
    most = max(arm.replicas for arm in arms)
    return resources.replace(
        cores_per_replica=resources.cores_per_replica or max(1, cores // most),
        inter_op_threads=resources.inter_op_threads or 2,
    )


def _default_name(spec: RunSpec) -> str:
    workload = spec.workload.rpartition("/")[2].replace(":", "-").replace(".", "-")
    return f"{workload}-{datetime.now():%Y%m%d-%H%M%S}"


def _new_folder(output: Path, name: str) -> Path:
    """The folder of this comparison; one that holds something already is refused."""
    folder = output / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise RefusalError(
                "A comparison needs a folder of its own.",
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
