"""`ringside input`."""

import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from launch.flags import spec_flags, with_flags
from ringside.cli.common import FolderName, OutputFolder, default_name, new_folder, only_one
from ringside.cli.stopping import NOTHING_YET, telling
from ringside.comparison.arms import with_changes
from ringside.comparison.budget import parse_duration
from ringside.comparison.choose import begin, choose_arms
from ringside.comparison.experiment import keep
from ringside.comparison.stages import go_on
from ringside.stats.inputs import input_study
from ringside.stats.summary import summarize
from ringside_core.specs import (
    Arm,
    Asked,
    Comparison,
    RefusalError,
    RunSpec,
    Shared,
    unknown_name,
)
from ringside_core.specs.input_change import CHANGES, NEEDS, InputStage, possible
from ringside_core.workloads.registry import fit_asked


@with_flags(spec=spec_flags(several_arms=True))
def command(
    *,
    spec: RunSpec,
    changes: Annotated[
        str | None,
        typer.Option(help="Names separated by commas. Default: the usual ones, see docs/input.md."),
    ] = None,
    budget: Annotated[str, typer.Option(help="Time, without certificates.")] = "8m",
    verify: Annotated[
        bool, typer.Option(help="Certify first that a change trains the same.")
    ] = True,
    name: FolderName = None,
    output: OutputFolder = Path("runs"),
) -> None:
    """Say whether a training waits for its data, for which part, and which change helps.

    Trains with the data as written, in memory, and with one change at a time, in turns on one
    replica; and reads alone.

    Example: ringside input my_script.py --budget 6m
    """
    console, began = Console(width=None if sys.stdout.isatty() else 100), time.monotonic()
    asked = Asked(budget_s=parse_duration(budget), all_arms=True)
    with console.status("timing the parts of the data…"):
        stages = _stages(spec)
    names = _named(changes, stages)
    chosen = choose_arms(Shared.from_run(spec), "serial", "1")
    (base,) = chosen.arms
    changed = [with_changes(base, {"input": one}) for one in names]
    arms = (base, *(_labelled(arm, f"serial:input={arm.settings.input}") for arm in changed))
    folder = new_folder(output, name or f"input-{default_name(spec)}")
    resume = shlex.join(["ringside", "compare", "--resume", str(folder)])
    with only_one(folder):
        with telling(console, NOTHING_YET):
            comparison = begin(
                console,
                replace(chosen, arms=arms),
                facts={},
                folder=folder,
                command=shlex.join(["ringside", *sys.argv[1:]]),
                asked=asked,
                seed=1,
                verify=verify,
            )
            plain = tuple(arm for arm in comparison.arms if not arm.twin_of)
            without = (
                _labelled(base, "serial without input").replace(ablation="no_input"),
                _labelled(base, "serial without training").replace(ablation="no_training"),
            )
            comparison = comparison.replace(arms=(*plain, *without), stages=stages)
            keep(comparison, folder)
        with telling(console, f"go on with: {resume}"):
            comparison = go_on(console, comparison, folder)
        _report(console, comparison, folder, seconds=time.monotonic() - began)


def _stages(spec: RunSpec) -> tuple[InputStage, ...]:
    asked = fit_asked(spec.workload, spec.workload_options, spec.data_dir, about="stages")
    # They are of the author's batch, and what is asked for may be another.
    authors = asked["global_batch"]
    times = spec.global_batch / authors if authors else 1.0
    stages = (InputStage(**one) for one in asked["stages"])
    return tuple(one.replace(seconds=times * one.seconds) for one in stages)


def _named(changes: str | None, stages: tuple[InputStage, ...]) -> list[str]:
    """The changes to try.

    Raises:
        RefusalError: an unknown one, or one that the data cannot have.
    """
    able = possible(stages)
    if changes is None:
        return [name for name in able if CHANGES[name].by_default]
    names = list(dict.fromkeys(name.strip() for name in changes.split(",") if name.strip()))
    for name in names:
        if name not in CHANGES:
            raise unknown_name("change of the input", name, CHANGES)
        if name not in able:
            raise RefusalError(
                f"The change {name} needs {NEEDS[CHANGES[name].needs]}.",
                received=f"data of {', '.join(one.name for one in stages)}",
                advice=f"These data can have: {', '.join(able) or 'none'}.",
            )
    return names


def _labelled(arm: Arm, label: str) -> Arm:
    return arm.replace(label=f"{label} ×1", group=label)


def _report(console: Console, comparison: Comparison, folder: Path, *, seconds: float) -> None:
    from ringside.report.sections.input import (
        changes_table,
        input_lines,
        lines_to_write,
        stages_table,
    )
    from ringside.report.terminal import rich_table
    from ringside.report.write import write_report  # matplotlib: only now

    page = write_report(comparison, folder)
    summary = summarize(comparison)
    study = input_study(comparison, summary)
    console.print(rich_table(stages_table(comparison)))
    if study is not None:
        console.print(rich_table(changes_table(study, summary)))
        for line in input_lines(comparison, study, summary):
            console.print(line, highlight=False, markup=False)
        for said, line in lines_to_write(study, summary):
            console.print(f"  {said}\n      {line}", highlight=False, markup=False)
    console.print(f"{seconds / 60:.1f} minutes")
    console.print(f"report: {page}#input", soft_wrap=True, highlight=False)
    base = comparison.arms[0].label  # a change may be one that the program's functions cannot take
    if not any(run.arm == base and run.outcome.completed for run in comparison.runs):
        raise typer.Exit(1)
