"""Run each arm once untouched, and once with each fault."""

from collections.abc import Callable, Sequence
from pathlib import Path

from launch.attempts import trainers_of
from ringside.certificates.gate import TOLERANCE
from ringside.certificates.processes import Start
from ringside.certificates.subject import Subject
from ringside.drill.cells import Cell, Drill
from ringside.drill.faults import obstacle
from ringside.drill.left import fits_of, records_of
from ringside.drill.run import Run
from ringside_core.specs import RefusalError, RunSpec
from ringside_core.text import file_name


def drill(
    subjects: Sequence[Subject],
    faults: Sequence[str],
    folder: Path,
    *,
    start: Start,
    deadline_s: float,
    min_replicas: int | None,
    on_start: Callable[[str], None],
    on_cell: Callable[[Drill], None],
) -> None:
    """Make every fault in every arm, one after the other.

    Args:
        subjects: arms, with runs that save.
        faults: names.
        folder: of the drill; new.
        start: where and by which launcher.
        deadline_s: see `launch.execute`.
        min_replicas: see `launch.elastic`; None: every run keeps its size.
        on_start: called with what begins, in words.
        on_cell: given all that has been found so far, after each cell.

    Raises:
        RefusalError: an arm does not train without a fault, or is over too soon.
    """
    cells: list[Cell] = []
    struck_after: dict[str, int] = {}
    for subject in subjects:
        label, spec = subject.arm.label, subject.spec
        own = folder / file_name(label)
        on_start(f"{label} without a fault")
        updates, after, fit = _whole(Run(subject, "", own / "whole", start, deadline_s=deadline_s))
        struck_after[label] = after
        for fault in faults:
            run = Run(
                subject, fault, own / fault, start, deadline_s=deadline_s, min_replicas=min_replicas
            )
            if why := obstacle(fault, spec, run.plan, start.placement):
                cell = Cell(arm=label, fault=fault, obstacle=why)
            else:
                on_start(f"{label}, {fault}")
                cell = run.with_its_fault(own / "whole", updates=updates, after=after, fit=fit)
            cells.append(cell)
            found = Drill(
                spec=subjects[0].spec,
                deadline_s=deadline_s,
                tolerance=TOLERANCE[subjects[0].spec.precision],
                struck_after=struck_after,
                cells=tuple(cells),
            )
            on_cell(found)


def _whole(run: Run) -> tuple[int, int, int]:
    """Train without a fault: (planned updates, those after which faults are made, in which fit)."""
    # Of a script with several fits it is the last one: the earlier ones must then be restored.
    outcome = run.without_a_fault()
    if not outcome.completed:
        raise RefusalError(
            "A drill needs a program that trains without a fault.",
            received=f"{run.label}: {outcome}",
            advice=f"Look into {run.folder}, or leave that arm out with --backends.",
        )
    fit = len(fits_of(run.folder))
    trainers = trainers_of(run.folder)
    made = max(one.step for one in trainers)  # a callback may have stopped it
    records = records_of(fits_of(run.folder)[-1])
    of_epoch = max(one.epochs[0].steps for one in records if one.epochs)
    planned = max(one.total_steps for one in trainers)
    return planned, between_checkpoints(run.spec, made, of_epoch), fit


def between_checkpoints(spec: RunSpec, updates: int, of_epoch: int) -> int:
    """An update in the middle of a run after which nothing is saved.

    Args:
        spec: of the run.
        updates: of the run.
        of_epoch: updates of an epoch.

    Raises:
        RefusalError: there is none.
    """
    every = spec.checkpoint_steps or of_epoch
    # After two checkpoints: one of them may be damaged.
    for update in range(max(2 * every + 1, updates // 2 + every // 2), updates - 1):
        if update % of_epoch % every and update % spec.steps_per_execution == 0:
            return update
    raise RefusalError(
        "A drill makes its faults in the middle of a run, between two checkpoints.",
        received=f"{updates} updates, a checkpoint after every {every}",
        advice="Use more --epochs, or a smaller --global-batch.",
    )
