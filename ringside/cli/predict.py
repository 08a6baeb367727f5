"""`ringside predict`."""

import shlex
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from ringside.cli.common import OutputFolder, new_folder
from ringside.lab.link import parse_rate
from ringside.report.source import (
    RESULTS,
    digest_of,
    naming,
    read_comparison,
    read_results,
    read_text,
)
from ringside_core.specs import Communication, Comparison, RefusalError, write_whole
from ringside_core.text import is_whole_number

if TYPE_CHECKING:
    from ringside.predict.predict import Asked
    from ringside.predict.prediction import Prediction

DEFAULT_SIZES = tuple(2**k for k in range(1, 13))
DOCUMENT = "communication.json"


def command(
    context: typer.Context,
    folder: Annotated[
        Path | None, typer.Argument(help="Folder of a comparison with runs at ×1 and ×2.")
    ] = None,
    communication: Annotated[
        Path | None,
        typer.Option(help="Folder of `ringside allreduce --replicas 2` between the same hosts."),
    ] = None,
    replicas: Annotated[
        str | None, typer.Option(help="Sizes, separated by commas. Default: 2, 4, 8 … 4096.")
    ] = None,
    replicas_per_host: Annotated[int, typer.Option(min=1)] = 1,
    rate: Annotated[
        str | None,
        typer.Option(
            help="What the link carries by TCP, for example 25gbit. Default: the measured rate."
        ),
    ] = None,
    scaling: Annotated[
        Literal["strong", "weak"] | None, typer.Option(help="Default: the comparison's.")
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(
            help="Check the prediction with this folder: a comparison at larger sizes on that link."
        ),
    ] = None,
    published: Annotated[
        bool, typer.Option("--published", help="Compare Horovod's published scaling with a model.")
    ] = False,
    name: Annotated[
        str | None, typer.Option(help="Name of the new folder. Default: predict- and the time.")
    ] = None,
    output: OutputFolder = Path("runs"),
) -> None:
    """Predict the step of every stack at sizes that were not measured.

    It uses runs at one and two replicas, all-reduces between two hosts, and the size of the
    gradients. It writes prediction.json, prediction.md and a drawing (SVG and PNG) into a folder.
    docs/prediction.md describes the model and what it cannot know.
    """
    console = Console(width=None if sys.stdout.isatty() else 130)
    if published:
        _published(console, context)
        return
    if folder is None:
        raise RefusalError(
            "ringside predict needs the folder of a comparison.",
            received="none",
            advice="Name one, or use --published.",
        )
    flags = _Flags(replicas, replicas_per_host, rate, scaling)
    prediction = _predicted(folder, communication, flags)
    if check is not None:
        prediction = _checked(prediction, read_comparison(folder), check)
    name = name or f"predict-{datetime.now():%Y%m%d-%H%M%S}"
    _write_and_print(prediction, new_folder(output, name), console)


@dataclass(frozen=True)
class _Flags:
    """The flags as typed."""

    replicas: str | None
    per_host: int
    rate: str | None
    scaling: Literal["strong", "weak"] | None


def _predicted(folder: Path, communication: Path | None, flags: _Flags) -> "Prediction":
    from ringside.predict.conditions import link_notes
    from ringside.predict.inputs import inputs_of, link_rate
    from ringside.predict.predict import epoch_notes, predict, step_notes
    from ringside.predict.prediction import Prediction

    results = read_results(folder)
    comparison = results.comparison
    found, digest = _communication(communication, comparison)
    measured_rate = link_rate(found, comparison)
    with naming(folder / RESULTS):
        notes = link_notes(comparison, found)
        stacks, not_predicted = inputs_of(comparison, found, measured_rate)
    asked = _asked(comparison, flags, measured_rate)
    predicted, without = predict(list(stacks.values()), asked, comparison)
    return Prediction(
        created_unix_s=time.time(),
        command=shlex.join(["ringside", *sys.argv[1:]]),
        comparison=results.digest,
        communication=digest,
        workload=comparison.shared.workload,
        scaling=asked.scaling,
        replicas_per_host=asked.per_host,
        measured_bits_per_s=measured_rate,
        bits_per_s=asked.bits_per_s,
        stacks=predicted,
        not_predicted={**not_predicted, **without},
        notes=(
            *notes,
            *epoch_notes(stacks.values(), asked),
            *step_notes(stacks.values(), asked),
        ),
    )


def _checked(prediction: "Prediction", predicted: Comparison, check: Path) -> "Prediction":
    """The prediction, with the measured steps added."""
    from ringside.predict.conditions import refuse_another
    from ringside.predict.predict import checks_of

    measured = read_comparison(check)
    notes = refuse_another(prediction, predicted, measured)
    checks = checks_of(prediction.stacks, measured)
    if not checks:
        raise RefusalError(
            "There is nothing to check: no predicted size was measured.",
            received=f"{check}: " + ", ".join(arm.label for arm in measured.arms),
            advice="Predict its sizes (--replicas); its batches must be the predicted ones.",
        )
    return prediction.replace(checks=checks, notes=(*prediction.notes, *notes))


def _write_and_print(prediction: "Prediction", place: Path, console: Console) -> None:
    from ringside.predict.pages import draw_prediction, printed, render_markdown

    write_whole(place / "prediction.json", prediction.to_json())
    write_whole(place / "prediction.md", render_markdown(prediction))
    draw_prediction(prediction, place)
    for part in printed(prediction):
        console.print(part)
    console.print(f"prediction: {place}", soft_wrap=True, highlight=False)


def _published(console: Console, context: typer.Context) -> None:
    from ringside.predict.pages import printed_section
    from ringside.predict.published import published, published_section

    given = [
        max(parameter.opts, key=len)
        for parameter in context.command.params
        if parameter.name not in (None, "published")
        and (source := context.get_parameter_source(str(parameter.name))) is not None
        and source.name == "COMMANDLINE"
    ]
    if given:
        raise RefusalError(
            "--published takes no other flag and no comparison.", received=", ".join(given)
        )
    for part in printed_section(published_section(published())):
        console.print(part)


def _communication(folder: Path | None, comparison: Comparison) -> tuple[Communication | None, str]:
    """The named all-reduces, or those that the comparison contains; and their digest."""
    from ringside.predict.conditions import refuse_other_hosts

    if folder is None:
        found, digest, origin = comparison.communication, "", "the comparison's own"
    else:
        file = folder / DOCUMENT if folder.is_dir() else folder
        text = read_text(file)
        found, digest = Communication.from_json(text, origin=str(file)), digest_of(text.encode())
        origin = str(file)
    if found is None:
        return None, ""
    refuse_other_hosts(comparison, found, origin)
    return found, digest or digest_of(found.to_json().encode())


def _asked(comparison: Comparison, flags: _Flags, measured_rate: float | None) -> "Asked":
    from ringside.predict.predict import Asked

    chosen = flags.scaling or comparison.scaling
    alone_batch = comparison.shared.global_batch_at(1)
    least = flags.per_host + bool(comparison.hosts)  # replicas of one host use no link
    if flags.replicas is None:
        sizes = tuple(
            size
            for size in DEFAULT_SIZES
            if size >= least and (chosen == "weak" or alone_batch % size == 0)
        )
    else:
        texts = [text.strip() for text in flags.replicas.split(",")]
        if not all(map(is_whole_number, texts)):
            raise RefusalError(
                "--replicas must be whole numbers, separated by commas.",
                received=repr(flags.replicas),
                advice="Example: --replicas 4,64,4096",
            )
        sizes = tuple(sorted({int(text) for text in texts}))
    return Asked(
        replicas=sizes,
        per_host=flags.per_host,
        scaling=chosen,
        bits_per_s=None if flags.rate is None else float(parse_rate(flags.rate)),
        measured_bits_per_s=measured_rate,
    )
