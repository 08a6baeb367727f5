"""`ringside compare`."""

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from cli.arms import (
    NOT_OF_SEVERAL_ARMS,
    BackendNames,
    FolderName,
    OutputFolder,
    Sizes,
    able_here,
    choose_arms,
)
from cli.folders import default_name, new_folder
from cli.progress import ComparisonProgress
from cli.surroundings import alone
from cli.verification import certify_arms
from compare.arms import DEFAULT_BACKENDS
from compare.experiment import run_experiment
from launch.flags import with_spec_flags
from specs import RunSpec
from verify.store import find_matrix


@with_spec_flags(
    alone,
    without=NOT_OF_SEVERAL_ARMS,
    backend="serial",
    save="record",
)
def command(
    *,
    spec: RunSpec,
    backends: BackendNames = DEFAULT_BACKENDS,
    replicas: Sizes = "1,2",
    rounds: Annotated[int, typer.Option(min=1, help="Passes over all arms.")] = 3,
    name: FolderName = None,
    output: OutputFolder = Path("runs"),
    deadline: Annotated[
        float, typer.Option(min=1, help="Seconds without progress after which a run is hung.")
    ] = 120.0,
    order_seed: Annotated[int, typer.Option(min=0, help="Of the order of the runs.")] = 1,
    verify: Annotated[
        bool, typer.Option(help="Certify the arms first; what is not certified is not ranked.")
    ] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the arms and end.")] = False,
) -> None:
    """Train the same model under every backend that can run here, and write a report.

    Certificates of earlier commands are used where nothing has changed since (`ringside verify`
    makes them anew).

    --intra-op-threads and --inter-op-threads are those of one replica.
    """
    console = Console(width=None if sys.stdout.isatty() else 120)
    base, arms = choose_arms(spec, backends, replicas)
    if dry_run:
        for arm in arms:
            console.print(arm.label)
        return
    folder = new_folder(output, name or default_name(spec))
    subjects, unable = able_here(console, base, arms)
    able = tuple(subject.arm for subject in subjects)
    began = time.monotonic()
    certificates = certify_arms(console, subjects, folder, reuse=True) if verify else ()
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
            certificates=certificates,
            detection=find_matrix(),
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
