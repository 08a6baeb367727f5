"""`ringside drill`."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from launch.flags import spec_flags, with_flags
from ringside.certificates.subject import Subject
from ringside.cli.common import (
    BackendNames,
    Deadline,
    FolderName,
    LauncherFlag,
    MinReplicas,
    OutputFolder,
    Sizes,
    default_name,
    new_folder,
    placement_from,
)
from ringside.cli.report import report_again, shared_of
from ringside.comparison.choose import able_here, choose_arms, only_named, startable
from ringside.comparison.hosts import all_slots
from ringside.drill.cells import RESULT, Drill
from ringside.drill.drill import drill
from ringside.drill.faults import FAULTS
from ringside.report.blocks import Terms
from ringside.report.markdown import rendered_block
from ringside.report.sections.safety import MEANING, arm_blocks, arm_tables, row_of
from ringside.report.terminal import rich_table
from ringside_core.specs import (
    Placement,
    RefusalError,
    RunSpec,
    Shared,
    unknown_name,
    write_whole,
)

PAGE = "drill.md"


@with_flags(placement=placement_from, spec=spec_flags(several_arms=True, precision="float64"))
def command(
    *,
    spec: RunSpec,
    placement: Placement,
    faults: Annotated[
        str | None, typer.Option(help=f"Comma-separated. Default: all of {', '.join(FAULTS)}.")
    ] = None,
    backends: BackendNames = None,
    replicas: Sizes = None,
    checkpoint_steps: Annotated[
        int, typer.Option(min=2, help="Updates between two checkpoints within an epoch.")
    ] = 4,
    launcher: LauncherFlag = "auto",
    min_replicas: MinReplicas = None,
    deadline: Deadline = 20.0,
    comparison: Annotated[
        Path | None,
        typer.Option(help="Folder of a comparison, whose report will show the tables too."),
    ] = None,
    name: FolderName = None,
    output: OutputFolder = Path("runs"),
) -> None:
    """Make the same faults in a run of each backend, and show what each of them loses.

    Example: ringside drill --backends serial,horovod --faults rank-killed
    """
    console = Console(width=None if sys.stdout.isatty() else 120)
    chosen_faults = _chosen(faults)
    if comparison is not None:
        shared_of(comparison, spec, "drill")  # refused now, and not after the drill
    if min_replicas is not None and not placement.names:
        raise RefusalError(
            "--min-replicas is of runs on the hosts of a hostfile.",
            received=f"--min-replicas {min_replicas}",
            advice="Add --hostfile.",
        )
    sizes = replicas or str(all_slots(placement) or 2)
    chosen = choose_arms(Shared.from_run(spec), backends, sizes, placement)
    if backends is not None:
        chosen = only_named(chosen, backends)
    chosen, start = startable(chosen, launcher, output)
    able, _ = able_here(console, chosen)
    subjects = [Subject(one.arm, saving(one.spec, checkpoint_steps)) for one in able]
    if not subjects:
        raise typer.Exit(1)
    folder = new_folder(output, name or f"drill-{default_name(spec)}").resolve()
    began = time.monotonic()
    found: Drill | None = None
    with console.status("") as status:

        def keep(so_far: Drill) -> None:
            nonlocal found
            found = so_far
            write_whole(folder / RESULT, found.to_json())
            blocks = (*arm_blocks(found), Terms((*FAULTS.items(), *MEANING.items())))
            texts = (text for block in blocks for text in rendered_block(block))
            write_whole(folder / PAGE, "\n\n".join(texts) + "\n")
            last = found.cells[-1]
            console.print(
                f"{last.arm}: {': '.join(row_of(last)[:2])}", highlight=False, markup=False
            )

        drill(
            subjects,
            chosen_faults,
            folder,
            start=start,
            deadline_s=deadline,
            min_replicas=min_replicas,
            on_start=status.update,
            on_cell=keep,
        )
    assert found is not None  # there are arms and faults
    for title, table in arm_tables(found):
        console.print(rich_table(table, title=title))
    for word, what in MEANING.items():
        console.print(f"{word}: {what}", highlight=False)
    console.print(f"It took {time.monotonic() - began:.0f} s. {folder / PAGE}", highlight=False)
    if comparison is not None:
        write_whole(comparison / RESULT, found.to_json())
        report_again(comparison)
    if not found.lost_nothing:
        raise typer.Exit(1)


def saving(spec: RunSpec, every: int) -> RunSpec:
    """The run with checkpoints; asynchronous workers are saved at the end of an epoch only.

    No worker is slow: what slows it would wake one that a fault has frozen.
    """
    steps = every if spec.capabilities.synchronous else None
    return spec.replace(save="all", checkpoint_steps=steps, slow_worker=None)


def _chosen(faults: str | None) -> list[str]:
    names = [one.strip() for one in (faults or ",".join(FAULTS)).split(",")]
    for name in names:
        if name not in FAULTS:
            raise unknown_name("fault", name, FAULTS)
    return list(dict.fromkeys(names))
