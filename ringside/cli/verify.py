"""`ringside verify`."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from launch.flags import spec_flags, with_flags
from ringside.certificates.certify_arms import certify_arms
from ringside.certificates.trial_request import FEWEST_UPDATES
from ringside.cli.common import (
    BackendNames,
    FolderName,
    LauncherFlag,
    OutputFolder,
    Sizes,
    default_name,
    new_folder,
    placement_from,
)
from ringside.comparison.choose import able_here, choose_arms, startable
from ringside.comparison.hosts import all_slots
from ringside_core.specs import Placement, RunSpec, Shared


@with_flags(placement=placement_from, spec=spec_flags(several_arms=True))
def command(
    *,
    spec: RunSpec,
    placement: Placement,
    backends: BackendNames = None,
    replicas: Sizes = None,
    steps: Annotated[
        int | None,
        typer.Option(
            min=FEWEST_UPDATES,
            help="Updates to compare; they include the end of an epoch. Default: the workload's, "
            "20 or fewer.",
        ),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Show where each arm first differs from the reference."),
    ] = False,
    launcher: LauncherFlag = "auto",
    name: FolderName = None,
    output: OutputFolder = Path("runs"),
) -> None:
    """Prove that every backend computes what the serial run computes; write a certificate each.

    Example: ringside verify my_script.py --backends serial,mirrored,horovod --replicas 2
    """
    from ringside.report.certificates import explain as explanation
    from ringside.report.certificates import render_certificates

    console = Console(width=None if sys.stdout.isatty() else 120)
    sizes = replicas or str(all_slots(placement) or 2)
    chosen = choose_arms(Shared.from_run(spec), backends, sizes, placement)
    chosen, start = startable(chosen, launcher, output)
    folder = new_folder(output, name or f"verify-{default_name(spec)}")
    began = time.monotonic()
    subjects, _ = able_here(console, chosen)
    certificates = certify_arms(console, subjects, folder, steps=steps, start=start)
    console.print(render_certificates(certificates))
    if explain:
        for certificate in certificates:
            console.print(explanation(certificate), highlight=False, markup=False)
    console.print(
        f"It took {time.monotonic() - began:.0f} s. Certificates: {folder}",
        soft_wrap=True,
        highlight=False,
    )
    if not all(certificate.passed for certificate in certificates):
        raise typer.Exit(1)
