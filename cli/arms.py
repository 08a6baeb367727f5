"""Which arms a command is about: the flags that say so, and those of them that can run here."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from compare.arms import Scaling, arm_spec, parse_arms, refuse_same_runs, shared_out
from compare.preflight import preflight
from specs import Arm, NotRun, RunSpec
from verify.certify import Subject

BackendNames = Annotated[
    str,
    typer.Option(help="Names with commas between; options and settings after colons: a:b=1:c=2."),
]
Sizes = Annotated[str, typer.Option(help="Numbers with commas between.")]
FolderName = Annotated[str | None, typer.Option(help="Of the folder. Default: workload, time.")]
OutputFolder = Annotated[Path, typer.Option(help="Folder in which it is made.")]

# Of a RunSpec's flags: what arms say themselves, and what one run alone has a use for.
NOT_OF_SEVERAL_ARMS = (
    "backend",
    "replicas",
    "option",
    "resume_from",
    "save",
    "ledger",
    "checkpoint_steps",
)


def choose_arms(
    spec: RunSpec, backends: str, replicas: str, scaling: Scaling = "strong"
) -> tuple[RunSpec, tuple[Arm, ...]]:
    """The run that all arms share, and the arms.

    Raises:
        RefusalError: no such arm, a batch that does not divide among its replicas, or the same run
            twice.
    """
    arms = parse_arms(backends, replicas)
    base = spec.replace(resources=shared_out(spec.resources, arms))
    refuse_same_runs(base, arms, scaling)  # and what cannot run, before anything is started
    return base, arms


def able_here(
    console: Console, base: RunSpec, arms: tuple[Arm, ...], scaling: Scaling = "strong"
) -> tuple[list[Subject], tuple[NotRun, ...]]:
    """The arms that can run on this machine, with their runs; a line for each of the others."""
    with console.status("looking at this machine…"):
        able, unable = preflight(arms, base)
    for reason in unable:
        console.print(f"[yellow]not run[/] {reason.label}: {reason.reason}", highlight=False)
    return [Subject(arm, arm_spec(base, arm, scaling)) for arm in able], unable
