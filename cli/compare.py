"""`ringside compare`."""

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from cli.folders import default_name, new_folder
from cli.progress import ComparisonProgress
from cli.surroundings import alone
from cli.verification import certify_arms, tell_not_run
from compare.arms import DEFAULT_BACKENDS, arm_spec, parse_arms, shared_out
from compare.experiment import run_experiment
from compare.preflight import preflight
from launch.flags import with_spec_flags
from specs import RunSpec
from verify.certify import Subject
from verify.store import find_matrix


@with_spec_flags(
    alone,
    without=("backend", "replicas", "option", "resume_from", "save", "ledger", "checkpoint_steps"),
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
    arms = parse_arms(backends, replicas)
    base = spec.replace(resources=shared_out(spec.resources, arms))
    for arm in arms:
        arm_spec(base, arm)  # refuses a batch that does not divide, before anything is started
    if dry_run:
        for arm in arms:
            console.print(arm.label)
        return
    folder = new_folder(output, name or default_name(spec))
    with console.status("looking at this machine…"):
        able, unable = preflight(arms, base)
    tell_not_run(console, unable)
    began = time.monotonic()
    subjects = [Subject(arm, arm_spec(base, arm)) for arm in able]
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
