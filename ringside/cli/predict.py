"""`ringside predict`."""

import shlex
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from ringside.cli.common import OutputFolder, new_folder
from ringside.predict.prediction import LARGEST, Prediction, predict
from ringside.report.blocks import Cell, Table, heads
from ringside.report.source import RESULTS, naming, read_results
from ringside.report.terminal import rich_table
from ringside.report.words import between
from ringside_core.specs import Communication, RefusalError, write_whole
from ringside_core.text import is_whole_number, number, percent

DOCUMENT = "communication.json"
SIZES = "4,16,64,256"
NOTE = (
    "Weak scaling; steps without (measured) are predicted. The interval covers scatter "
    "between rounds, the error of the cost model, and growth that the measurements leave open. It "
    "cannot cover what few hosts do not show: shared switches, slow hosts, failures, another "
    "algorithm of the stack at another size. Unseen: how often the slowest replica takes longer "
    "than any step that was seen; how much longer is extrapolated."
)


def command(
    folder: Annotated[Path, typer.Argument(help="Folder of a comparison, with runs at ×1 and ×2.")],
    communication: Annotated[
        Path | None,
        typer.Option(
            help="Folder of `ringside allreduce` on the same hosts. Default: the comparison's own."
        ),
    ] = None,
    replicas: Annotated[
        str | None,
        typer.Option(
            help=f"Sizes, separated by commas. Default: those of {SIZES} that were not run."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the new folder. Default: predict- and the time.")
    ] = None,
    output: OutputFolder = Path("runs"),
) -> None:
    """Predict the step of each stack of all-reduces at more replicas than were run.

    It uses runs of one replica and of several, and the times of all-reduces by themselves. It
    prints a table and writes prediction.json. docs/prediction.md describes the model.

    Example: ringside predict runs/small --communication runs/pair
    """
    sizes = _sizes(replicas or SIZES)
    results = read_results(folder)
    reduced = _communication(communication, results.comparison.communication)
    with naming(folder / RESULTS):
        stacks, not_predicted = predict(results.comparison, reduced, sizes)
    # Only what is beyond what was run.
    stacks = tuple(
        one.replace(steps_ms={k: v for k, v in one.steps_ms.items() if k > one.known_replicas})
        for one in stacks
    )
    predicted = {size for stack in stacks for size in stack.steps_ms}
    if not predicted or (replicas and not predicted.issuperset(sizes)):
        most = min(stack.known_replicas for stack in stacks)
        raise RefusalError(
            "--replicas must be more than were run.",
            received=repr(replicas or SIZES),
            advice=f"{most} were run.",
        )
    prediction = Prediction(
        created_unix_s=time.time(),
        command=shlex.join(["ringside", *sys.argv[1:]]),
        comparison=results.digest,
        communication=reduced.content_hash,
        stacks=stacks,
        not_predicted=not_predicted,
    )
    place = new_folder(output, name or f"predict-{datetime.now():%Y%m%d-%H%M%S}")
    write_whole(place / "prediction.json", prediction.to_json())
    console = Console(width=None if sys.stdout.isatty() else 100)
    console.print(rich_table(table_of(prediction)))
    console.print(Text(NOTE))
    for reason in {step.reason for stack in stacks for step in stack.steps_ms.values()} - {""}:
        console.print(Text(f"There is no interval: {reason}."))
    for stack, reason in prediction.not_predicted.items():
        console.print(Text(f"Not predicted: {stack}: {reason}"))
    console.print(f"prediction: {place}", soft_wrap=True, highlight=False)


def table_of(prediction: Prediction) -> Table:
    """The measured steps of each stack, then the predicted ones."""
    rows = []
    for stack in prediction.stacks:
        measured = {1: stack.alone_ms, stack.known_replicas: stack.known_ms}
        steps = [(count, ms, "(measured)", "") for count, ms in measured.items()]
        for count, step_ms in stack.steps_ms.items():
            ms, within = step_ms.value or 0.0, step_ms.interval
            beside = between(within, ms) if within else "(no interval)"
            steps.append((count, ms, beside, percent(stack.unseen_share(count))))
        for count, ms, beside, unseen in steps:
            rate = number(1000 * count * stack.batch / ms)
            cells = (f"{count:,}", f"{number(ms)} {beside}", rate, percent(stack.efficiency(ms)))
            rows.append(tuple(map(Cell, (stack.label, *cells, unseen))))
    columns = heads("<Stack | Replicas | Step, ms [95 %] | Examples/s | Efficiency | Unseen")
    return Table(columns, tuple(rows))


def _sizes(text: str) -> list[int]:
    texts = [part.strip() for part in text.split(",")]
    if not all(is_whole_number(size) and 2 <= int(size) <= LARGEST for size in texts):
        raise RefusalError(
            f"--replicas must be whole numbers from 2 to {LARGEST:,}, separated by commas.",
            received=repr(text),
            advice="Example: --replicas 4,64,4096",
        )
    return sorted(set(map(int, texts)))


def _communication(folder: Path | None, kept: Communication | None) -> Communication:
    """The all-reduces in the folder, or else those that the comparison holds."""
    if folder is not None:
        file = folder / DOCUMENT
        try:
            return Communication.from_json(file.read_text(encoding="utf-8"), origin=str(file))
        except (OSError, UnicodeDecodeError) as error:
            raise RefusalError(
                "--communication must be a folder of `ringside allreduce`.", received=error
            ) from None
    if kept is None:
        raise RefusalError(
            "A prediction needs all-reduces between the hosts of the runs.",
            received="none in the comparison, and no --communication",
            advice="Make them: ringside allreduce --replicas 2, with the same --hostfile.",
        )
    return kept
