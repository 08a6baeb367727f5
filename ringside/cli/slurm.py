"""Whether a run goes to Slurm: the flags that say so, and its plan."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from launch import (
    LauncherName,
    Placement,
    Plan,
    Site,
)
from launch.launchers import slurm
from ringside_core.specs import RefusalError, RunSpec

SlurmFlag = Annotated[
    bool, typer.Option("--slurm", help="Submit it to Slurm as one batch job, and wait for that.")
]
NodesFlag = Annotated[
    int | None,
    typer.Option(min=1, help="With --slurm: spread evenly over so many. Default: Slurm chooses."),
]
SbatchFlag = Annotated[
    list[str] | None,
    typer.Option(help="With --slurm: one more option of sbatch, repeatable (--partition=gpu)."),
]


def refuse_without_slurm(nodes: int | None, lines: Sequence[str]) -> None:
    """Refuse flags that say how a job of Slurm is, where there is none."""
    if nodes is not None or lines:
        raise RefusalError(
            "--nodes and --sbatch are of runs in Slurm.",
            received=f"--nodes {nodes}" if nodes is not None else f"--sbatch {lines[0]}",
            advice="Add --slurm.",
        )


def slurm_plan(
    spec: RunSpec,
    run_dir: Path,
    *,
    placement: Placement,
    launcher: LauncherName,
    nodes: int | None,
    lines: Sequence[str],
) -> Plan:
    """The plan of a run in Slurm, see `launch.launchers.slurm.plan`.

    Raises:
        RefusalError: flags that say where else, or how else, it should run.
    """
    if placement != Placement() or launcher != "auto":
        raise RefusalError(
            "In Slurm, sbatch chooses the hosts and srun starts the processes.",
            received="--slurm beside "
            + (f"--launcher {launcher}" if launcher != "auto" else "a hostfile or its flags"),
            advice="Leave the other away; --nodes and --sbatch say more to Slurm.",
        )
    return slurm.plan(spec, run_dir=run_dir, site=Site.here(), nodes=nodes, lines=lines)
