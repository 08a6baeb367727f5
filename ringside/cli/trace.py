"""`ringside trace`."""

import dataclasses
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from launch.flags import spec_flags, with_flags
from ringside.cli.common import (
    BackendNames,
    Deadline,
    FolderName,
    OutputFolder,
    Sizes,
    default_name,
    new_folder,
)
from ringside.cli.report import must_be_of, report_again
from ringside.comparison.choose import able_here, choose_arms
from ringside.report.sections.timeline import steps_table, timeline_section
from ringside.report.terminal import rich_table
from ringside.timeline.perfetto import perfetto_json
from ringside.timeline.trace import check_traceable, trace
from ringside_core.specs import REFERENCE, RunSpec, Shared, write_whole
from ringside_core.specs.timeline import RESULT, Stack, Timeline
from ringside_core.text import file_name

PERFETTO, PAGE = "trace.json", "trace.html"
BOTH = "horovod,multi_worker_mirrored"


@with_flags(spec=spec_flags(several_arms=True))
def command(
    *,
    spec: RunSpec,
    backends: BackendNames = None,
    replicas: Sizes = None,
    deadline: Deadline = 120.0,
    comparison: Annotated[
        Path | None,
        typer.Option(help="Folder of a comparison, whose report will show the picture too."),
    ] = None,
    name: FolderName = None,
    output: OutputFolder = Path("runs"),
) -> None:
    """Show what each process does within a step: a picture, and a file for Perfetto.

    A few steps of each arm are traced on this machine, one arm after the other. A traced run is
    slower and never timed. Default: Horovod and MultiWorkerMirrored with two replicas.

    Example: ringside trace my_script.py --backends horovod,multi_worker_mirrored
    """
    console, began = Console(width=None if sys.stdout.isatty() else 100), time.monotonic()
    if comparison is not None:
        must_be_of(comparison, spec, "trace")
    chosen = choose_arms(Shared.from_run(spec), backends or BOTH, replicas or "2")
    if REFERENCE not in [word.strip() for word in (backends or BOTH).split(",")]:
        arms = tuple(arm for arm in chosen.arms if arm.group != REFERENCE)
        chosen = dataclasses.replace(chosen, arms=arms)
    for arm in chosen.arms:
        check_traceable(arm)
    folder = new_folder(output, name or f"trace-{default_name(spec)}").resolve()
    subjects, _ = able_here(console, chosen)
    stacks: list[Stack] = []
    failed = not subjects
    for number, one in enumerate(subjects):
        with console.status(f"tracing {one.arm.label}…"):
            run_dir = folder / f"{number}-{file_name(one.arm.label)}"
            execution, stack = trace(one.arm, one.spec, run_dir, deadline_s=deadline)
        if execution.outcome.completed and stack.lanes:
            stacks.append(stack)
        else:
            failed = True
            why = str(execution.outcome)
            console.print(f"{one.arm.label}: {why}", highlight=False, markup=False)
            console.print(f"its logs: {run_dir / 'logs'}", highlight=False, soft_wrap=True)
    if stacks:
        _write(console, Timeline(stacks=tuple(stacks)), folder, comparison)
    console.print(f"It took {time.monotonic() - began:.0f} s.", highlight=False)
    if failed:
        raise typer.Exit(1)


def _write(console: Console, timeline: Timeline, folder: Path, comparison: Path | None) -> None:
    from ringside.report.html import rendered
    from ringside.report.plots import timeline_plot  # matplotlib: only now

    sections = (*timeline_section(timeline),)
    page = rendered(
        "sections.html.j2",
        eyebrow="Ringside trace",
        title=folder.name,
        lead="",
        sections=sections,
        plots={"timeline": timeline_plot(timeline)},
    )
    for where in filter(None, (folder, comparison)):
        write_whole(where / RESULT, timeline.to_json())
        write_whole(where / PERFETTO, perfetto_json(timeline))
    write_whole(folder / PAGE, page)
    console.print(rich_table(steps_table(timeline)))
    console.print(sections[0].answer, highlight=False, markup=False)
    console.print(f"picture: {folder / PAGE}", soft_wrap=True, highlight=False)
    console.print(f"open in ui.perfetto.dev: {folder / PERFETTO}", soft_wrap=True, highlight=False)
    if comparison is not None:
        report_again(comparison)
