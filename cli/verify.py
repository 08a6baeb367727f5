"""`ringside verify`."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from cli.folders import default_name, new_folder
from cli.surroundings import alone
from cli.verification import certify_arms, make_mistakes, tell_not_run
from compare.arms import DEFAULT_BACKENDS, arm_spec, parse_arms, shared_out
from compare.preflight import preflight
from launch.flags import with_spec_flags
from specs import RefusalError, RunSpec
from verify.case import DEFAULT_STEPS
from verify.certify import Subject


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
    replicas: Annotated[str, typer.Option(help="Numbers with commas between.")] = "2",
    steps: Annotated[
        int, typer.Option(min=4, help="Updates to compare; they hold an epoch end.")
    ] = DEFAULT_STEPS,
    controls: Annotated[
        bool, typer.Option("--controls", help="Make deliberate mistakes; the gate must catch all.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show where each arm parts from the reference.")
    ] = False,
    name: Annotated[
        str | None, typer.Option(help="Of the folder. Default: workload, time.")
    ] = None,
    output: Annotated[Path, typer.Option(help="Folder in which it is made.")] = Path("runs"),
) -> None:
    """Prove that every backend computes what the serial run computes; write a certificate each."""
    from report.certificates import explain as explanation
    from report.certificates import render_certificates, render_matrix

    console = Console(width=None if sys.stdout.isatty() else 120)
    arms = parse_arms(backends, replicas)
    base = spec.replace(resources=shared_out(spec.resources, arms))
    for arm in arms:
        arm_spec(base, arm)  # refuses a batch that does not divide, before anything is started
    if controls and all(arm.replicas == 1 for arm in arms):
        raise RefusalError(
            "--controls needs an arm of several replicas: one has nobody to disagree with.",
            received=f"--replicas {replicas}",
            advice="Use --replicas 2.",
        )
    folder = new_folder(output, name or f"verify-{default_name(spec)}")
    began = time.monotonic()
    with console.status("looking at this machine…"):
        able, unable = preflight(arms, base)
    tell_not_run(console, unable)
    subjects = [Subject(arm, arm_spec(base, arm)) for arm in able]
    certificates = certify_arms(console, subjects, folder, steps=steps)
    console.print(render_certificates(certificates))
    if explain:
        for certificate in certificates:
            console.print(explanation(certificate), highlight=False, markup=False)
    # An arm that is not certified without a mistake says nothing about the gate.
    right = [s for s, c in zip(subjects, certificates, strict=True) if c.passed]
    matrix = make_mistakes(console, right, folder) if controls else None
    if matrix is not None:
        console.print(render_matrix(matrix))
    passed = sum(certificate.passed for certificate in certificates)
    console.print(
        f"{passed} of {len(certificates)} arms certified in {time.monotonic() - began:.0f} s; "
        f"certificates: {folder}",
        soft_wrap=True,
        highlight=False,
    )
    if passed < len(certificates) or (matrix is not None and not matrix.passed):
        raise typer.Exit(1)
