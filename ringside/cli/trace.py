"""`ringside trace`."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from launch.flags import spec_flags, with_flags
from ringside.cli.common import Deadline, FolderName, OutputFolder, default_name, new_folder
from ringside.cli.report import report_again, shared_of
from ringside.comparison.arms import too_few_cores
from ringside.comparison.choose import able_here, choose_arms, only_named
from ringside.report.sections.timeline import steps_table, timeline_section
from ringside.report.terminal import rich_table
from ringside.timeline.perfetto import perfetto_json
from ringside.timeline.trace import check_traceable, trace
from ringside_core.readings.machine import gpu_names
from ringside_core.specs import RefusalError, RunSpec, Shared, write_whole
from ringside_core.specs.timeline import RESULT, Stack, Timeline
from ringside_core.text import file_name

PERFETTO, PAGE = "trace.json", "trace.html"


@with_flags(spec=spec_flags(several_arms=True))
def command(
    *,
    spec: RunSpec,
    backends: Annotated[
        str, typer.Option(help="Backends, separated by commas; options and settings after colons.")
    ] = "horovod,multi_worker_mirrored",
    replicas: Annotated[str, typer.Option(help="Numbers of replicas, separated by commas.")] = "2",
    deadline: Deadline = 120.0,
    comparison: Annotated[
        Path | None,
        typer.Option(
            help="Folder of a comparison: arms have its batch, precision and Keras, and its report "
            "will show the picture too."
        ),
    ] = None,
    name: FolderName = None,
    output: OutputFolder = Path("runs"),
) -> None:
    """Show what each process does within a step: a picture, and a file for Perfetto.

    A few steps of each arm are traced on this machine, one arm after the other. A traced run is
    slower and never timed. Horovod runs once more, with its own timeline, for Perfetto only.

    Example: ringside trace my_script.py --backends horovod,multi_worker_mirrored
    """
    console, began = Console(width=None if sys.stdout.isatty() else 100), time.monotonic()
    shared = Shared.from_run(spec) if comparison is None else shared_of(comparison, spec, "trace")
    if gpus := gpu_names():
        raise RefusalError(
            "A trace shows operations on processors, and what waits for them.",
            received=", ".join(gpus),
            advice="Hide GPUs by CUDA_VISIBLE_DEVICES=-1, or use TensorFlow's profiler itself.",
        )
    chosen = only_named(choose_arms(shared, backends, replicas), backends)
    for arm in chosen.arms:
        check_traceable(arm)
    folder = new_folder(output, name or f"trace-{default_name(spec)}").resolve()
    subjects, _ = able_here(console, chosen)
    each = chosen.shared.resources.cores_per_replica
    if subjects and each and (few := too_few_cores([one.arm for one in subjects], each)):
        console.print(f"[yellow]too few cores[/]: {few}", highlight=False)
    runs = [(one, False) for one in subjects]
    runs += [(one, True) for one in subjects if one.arm.capabilities.family == "horovod"]
    stacks: list[Stack] = []
    try:
        for number, (one, says) in enumerate(runs):
            with console.status(f"tracing {one.arm.label}…"):
                run_dir = folder / f"{number}-{file_name(one.arm.label)}"
                execution, stack = trace(one.arm, one.spec, run_dir, deadline_s=deadline, says=says)
            if execution.outcome.completed:
                stacks.append(stack)
            else:
                why = str(execution.outcome).splitlines()[0]
                console.print(f"{one.arm.label}: {why}", highlight=False, markup=False)
                console.print(f"its logs: {run_dir / 'logs'}", highlight=False, soft_wrap=True)
    finally:  # what was traced before an interrupt
        if any(not stack.says for stack in stacks):
            whole = comparison if len(stacks) == len(runs) else None
            _write(console, Timeline(stacks=tuple(stacks)), folder, whole)
    console.print(f"It took {time.monotonic() - began:.0f} s.", highlight=False)
    if len(stacks) < max(1, len(runs)):
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
