"""`ringside launch`."""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from launch import LAUNCHERS, LauncherName, execute, make_plan
from launch.attempts import attempt, set_aside
from launch.claim import holds_run
from launch.elastic import Elastic
from launch.flags import spec_flags, with_flags
from launch.interrupts import Interrupts
from launch.launchers import Launcher
from launch.launchers.slurm import must_be_accepted
from ringside.cli.common import Deadline, MinReplicas, placement_from
from ringside.comparison.hosts import ready_hosts
from ringside_core.specs import AUTO, Execution, Placement, RefusalError, RunSpec, read_hostfile
from ringside_core.specs.placement import spread
from ringside_core.text import epoch_line


def slurm_from(
    slurm: Annotated[
        bool,
        typer.Option("--slurm", help="Submit it to Slurm as one batch job, and wait for its end."),
    ] = False,
    nodes: Annotated[
        int | None,
        typer.Option(
            min=1, help="With --slurm: spread evenly over so many. Default: Slurm chooses."
        ),
    ] = None,
    sbatch: Annotated[
        list[str] | None,
        typer.Option(help="With --slurm: one more option of sbatch, repeatable (--partition=gpu)."),
    ] = None,
) -> Launcher | None:
    """The launcher of a job in Slurm; None: it is no such job."""
    if not slurm and (nodes is not None or sbatch):
        raise RefusalError(
            "--nodes and --sbatch are options of runs in Slurm.",
            received=f"--nodes {nodes}" if nodes is not None else f"--sbatch {(sbatch or [''])[0]}",
            advice="Add --slurm.",
        )
    return LAUNCHERS["slurm"](nodes=nodes, lines=sbatch or ()) if slurm else None


@with_flags(slurm=slurm_from, placement=placement_from, spec=spec_flags())
def command(
    *,
    context: typer.Context,
    spec: RunSpec,
    placement: Placement,
    slurm: Launcher | None,
    launcher: Annotated[LauncherName, typer.Option(help="auto: what the backend joins.")] = "auto",
    run_dir: Annotated[
        Path | None, typer.Option(help="Where results go. Default: runs/ and the run's name.")
    ] = None,
    restarts: Annotated[
        int,
        typer.Option(
            min=0,
            help="Start a run that failed, hung or was preempted again, so often, from its newest "
            "checkpoint.",
        ),
    ] = 0,
    min_replicas: MinReplicas = None,
    deadline: Deadline = 120.0,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show every process's output live.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be started, and end.")
    ] = False,
) -> None:
    """Start one run under one backend, wait for it, and say how it ended.

    Example: ringside launch my_script.py --backend horovod --replicas 2
    """
    if slurm is not None and launcher != "auto":
        raise RefusalError(
            "In Slurm, srun starts the processes.",
            received=f"--slurm beside --launcher {launcher}",
            advice="Leave --launcher away. Use --nodes and --sbatch.",
        )
    spec = _placed(spec, placement)
    folder = run_dir or Path("runs") / spec.run_name
    elastic = None
    if min_replicas is not None:
        if not placement.names or not restarts:
            raise RefusalError(
                "--min-replicas is of a run that is started again on the hosts of a hostfile.",
                received=f"--min-replicas {min_replicas}",
                advice="Add --hostfile and --restarts.",
            )
        elastic = Elastic(
            spec,
            min_replicas,
            hosts=partial(read_hostfile, context.params["hostfile"]),
            placement=placement,
            run_dir=folder,
            say=_say,
        )
    plan = partial(make_plan, run_dir=folder, launcher=slurm or launcher)
    planned = plan(spec, placement=placement)
    if dry_run:
        print(planned.render(), end="")
        return
    _check_folder(spec, folder, restarts)
    if slurm is not None:
        must_be_accepted(planned)
    if placement.names and elastic is None:
        # A host of the file that the run does not use may be off.
        ready_hosts([spec], placement, folder)

    def start(spec: RunSpec, interrupts: Interrupts) -> Execution:
        def run(spec: RunSpec, placement: Placement) -> Execution:
            planned = plan(spec, placement=placement)
            return execute(planned, deadline_s=deadline, live=verbose, interrupts=interrupts)

        return elastic.run(spec, run, interrupts) if elastic else run(spec, placement)

    execution, attempts = attempt(spec, folder, start, restarts=restarts, say=_say)
    _tell(execution)
    many = f" after {attempts}" if len(attempts.attempts) > 1 else ""
    print(f"{execution.outcome} in {execution.wall_s:.1f} s{many}; records and logs: {folder}")
    if not execution.outcome.completed:
        if execution.last_lines:
            print(f"last lines of {execution.failing_task}:", file=sys.stderr)
            print(*execution.last_lines, sep="\n", file=sys.stderr)
        raise typer.Exit(execution.outcome.exit_code)


def _placed(spec: RunSpec, placement: Placement) -> RunSpec:
    """The run, spread over the hosts."""
    if placement.servers_on and spec.capabilities.process_model != "coordinator":
        raise RefusalError(
            "--servers-on is of a backend with parameter servers.",
            received=f"--servers-on {','.join(placement.servers_on)} --backend {spec.backend}",
            advice="Leave --servers-on away.",
        )
    return spec.replace(topology=spread(spec.topology, placement))


def _check_folder(spec: RunSpec, folder: Path, restarts: int) -> None:
    """Refuse a folder with another run, and restarts that could not resume."""
    if restarts and spec.save != "all":
        raise RefusalError(
            "A run that is started again needs checkpoints.",
            received=f"--restarts {restarts} with --save {spec.save}",
            advice="Use --save all.",
        )
    if restarts:
        spec.replace(resume_from=AUTO)  # refused now, and not after the first attempt
    if spec.resume_from == AUTO:
        set_aside(folder)
    if holds_run(folder):
        raise RefusalError(
            "A run needs a folder of its own.",
            received=f"{folder}, which holds one already",
            advice="To go on with that one: --resume auto. To begin again: --run-dir with another "
            "folder, or remove this one.",
        )


def _say(text: str) -> None:
    print(text, flush=True)


def _tell(execution: Execution) -> None:
    """What the chief's record says of the training."""
    chief = next((record for record in execution.records if record.is_chief), None)
    if chief is not None:
        for number, epoch in enumerate(chief.epochs, start=1):
            rate = epoch.examples / epoch.train_s
            print(epoch_line(number, epoch.train, epoch.validation, rate))
        for warning in chief.warnings:
            print(f"warning: {warning}", file=sys.stderr)
