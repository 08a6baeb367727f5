"""`ringside compare`."""

import shlex
import sys
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from launch.flags import spec_flags, with_flags
from ringside.cli.common import (
    BackendNames,
    Deadline,
    FolderName,
    OutputFolder,
    Price,
    Sizes,
    default_name,
    new_folder,
    only_one,
    placement_from,
)
from ringside.cli.stopping import NOTHING_YET, telling
from ringside.comparison.arms import twin
from ringside.comparison.budget import parse_duration
from ringside.comparison.choose import begin, choose_arms, on_hosts
from ringside.comparison.experiment import RESULTS
from ringside.comparison.resume import look_again, reopened
from ringside.comparison.stages import go_on
from ringside.report.earlier import with_earlier, without_note
from ringside.stats.summary import summarize
from ringside_core.specs import Asked, Comparison, Placement, RefusalError, RunSpec, Scaling, Shared

DEFAULT_TRIALS = 6
MAY_BE_NEW = ("resume", "budget")


def asked_for(
    budget: Annotated[
        str | None,
        typer.Option(
            help="Time for the screening and the final (90s, 10m, 1h), without certificates. With "
            "--resume, for more launches of the final. Default: 255s."
        ),
    ] = None,
    launches: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Launches of the final; 0: only the screening. Default: as the budget is divided.",
        ),
    ] = None,
    all_arms: Annotated[
        bool,
        typer.Option(
            "--all-arms",
            help="Let every arm take part in the final, so that every pair has an interval.",
        ),
    ] = False,
    price: Price = None,
) -> Asked:
    """How much is measured."""
    given = {} if budget is None else {"budget_s": parse_duration(budget)}
    return Asked(launches=launches, all_arms=all_arms, price=price, **given)


def trials_of(
    tuned: Annotated[
        bool, typer.Option("--tuned", help="Search settings for each arm; compare those too.")
    ] = False,
    trials: Annotated[
        int | None, typer.Option(min=2, help="Settings that --tuned tries per arm. Default: 6.")
    ] = None,
) -> int:
    """Trials of the search for each arm; 0: no search."""
    if trials is not None and not tuned:
        raise RefusalError(
            "--trials needs --tuned.", received=f"--trials {trials}", advice="Add --tuned."
        )
    return (trials or DEFAULT_TRIALS) if tuned else 0


@with_flags(
    asked=asked_for,
    trials_each=trials_of,
    placement=placement_from,
    spec=spec_flags(several_arms=True),
)
def command(
    *,
    context: typer.Context,
    spec: RunSpec,
    placement: Placement,
    asked: Asked,
    trials_each: int,
    backends: BackendNames = None,
    replicas: Sizes = None,
    scaling: Annotated[
        Scaling,
        typer.Option(
            help="strong: --global-batch at every size. weak: --global-batch is the batch of each "
            "replica."
        ),
    ] = "strong",
    why: Annotated[
        bool, typer.Option("--why", help="Also run what shows where the time of a step goes.")
    ] = False,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh",
            help="Run each arm alone, one after the other. By default the arms of a launch are "
            "live side by side and train in turns, block by block, which needs far less time.",
        ),
    ] = False,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="Go on with the interrupted comparison in this folder; with --budget, add "
            "launches to one that has ended."
        ),
    ] = None,
    verify: Annotated[
        bool, typer.Option(help="Certify the arms first. Only certified arms are ranked.")
    ] = True,
    name: FolderName = None,
    output: OutputFolder = Path("runs"),
    deadline: Deadline = 120.0,
    order_seed: Annotated[int, typer.Option(min=0, help="Seed of the order of the runs.")] = 1,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the arms; start nothing.")
    ] = False,
) -> None:
    """Train the same model under every backend that can run here, and write a report.

    Certificates of earlier commands are used again if nothing has changed since. `ringside verify`
    makes new ones.

    --intra-op-threads and --inter-op-threads count the threads of one replica.

    Example: ringside compare my_script.py --replicas 2 --budget 5m
    """
    console = Console(width=None if sys.stdout.isatty() else 100)
    began = time.monotonic()
    if resume is not None:
        _refuse_other_flags(context)
        again = partial(reopened, resume, budget=context.params["budget"])
        if not (resume / RESULTS).is_file():
            again()  # refuses, and leaves no lock
        with only_one(resume):
            comparison = without_note(again())
            look_again(console, comparison, resume)
            _finish(console, comparison, resume, began=began)
        return
    chosen = choose_arms(Shared.from_run(spec, scaling), backends, replicas, placement, few=True)
    if dry_run:
        twins = twin(chosen.arms) if fresh or asked.all_arms else ()
        for arm in (*chosen.arms, *twins):
            console.print(arm.label, highlight=False)
        return
    chosen, facts = on_hosts(chosen, output)
    folder = new_folder(output, name or default_name(spec))
    with only_one(folder):
        with telling(console, NOTHING_YET):
            comparison = begin(
                console,
                chosen,
                facts=facts,
                folder=folder,
                command=shlex.join(["ringside", *sys.argv[1:]]),
                asked=asked,
                seed=order_seed,
                deadline_s=deadline,
                verify=verify,
                why=why,
                live=not fresh,
                trials_each=trials_each,
            )
        _finish(console, comparison, folder, began=began)


def _finish(console: Console, comparison: Comparison, folder: Path, *, began: float) -> None:
    """Go on to the end, and write the report. If stopped, say how to go on."""
    resume = shlex.join(["ringside", "compare", "--resume", str(folder)])
    with telling(console, f"go on with: {resume}"):
        comparison = go_on(console, comparison, folder)
    again = shlex.join(["ringside", "report", str(folder)])
    with telling(console, f"all runs are made; write the report with: {again}"):
        _report(console, comparison, folder, seconds=time.monotonic() - began)


def _refuse_other_flags(context: typer.Context) -> None:
    """Refuse flags that the folder already answers: all but --budget."""
    given = [
        _as_typed(parameter, context.params.get(str(parameter.name)))
        for parameter in context.command.params
        if parameter.name not in MAY_BE_NEW
        and (source := context.get_parameter_source(str(parameter.name))) is not None
        and source.name == "COMMANDLINE"
    ]
    if given:
        raise RefusalError(
            "--resume takes everything from the folder; only --budget may be new.",
            received=", ".join(given),
            advice="Leave them out, or start a new comparison.",
        )


def _as_typed(parameter: Any, value: object) -> str:
    """The long name of a flag, in its `--no-…` form if that was typed."""
    names = parameter.secondary_opts if value is False and parameter.secondary_opts else None
    return str(max(names or parameter.opts, key=len))


def _report(console: Console, comparison: Comparison, folder: Path, *, seconds: float) -> None:
    """The table, the page, what it says, what to do next; exit code 1 if a run failed."""
    from ringside.report.ending import next_step
    from ringside.report.table import render_table
    from ringside.report.write import write_report  # matplotlib: only now

    comparison = with_earlier(comparison, folder)
    page = write_report(comparison, folder)
    console.print(render_table(comparison))
    failed = sum(not run.outcome.completed for run in comparison.runs)
    console.print(f"{len(comparison.runs)} runs, {failed} failed, {seconds / 60:.1f} minutes")
    console.print(f"report: {page}", soft_wrap=True, highlight=False)
    following = next_step(summarize(comparison), comparison, str(folder))
    console.print(f"\nNext: {following}.", soft_wrap=True, highlight=False, markup=False)
    if failed:
        raise typer.Exit(1)
