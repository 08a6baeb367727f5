"""The folder in which a command leaves its results, and how long it waits for them."""

import math
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from ringside.cli.lock import LOCK
from ringside_core.specs import RefusalError, RunSpec


def finite(seconds: float) -> float:
    """A number of seconds that ends; for a flag (`min=` lets inf and nan through)."""
    if not math.isfinite(seconds):
        raise typer.BadParameter(f"{seconds} is no number of seconds.")
    return seconds


Deadline = Annotated[
    float,
    typer.Option(
        min=1,
        callback=finite,
        help="Seconds without progress: then a run is hung (120 at least before its first step).",
    ),
]


def default_name(spec: RunSpec) -> str:
    """A name that says what was trained, and when."""
    workload = spec.workload.rpartition("/")[2].replace(":", "-").replace(".", "-")
    return f"{workload}-{datetime.now():%Y%m%d-%H%M%S}"


def new_folder(output: Path, name: str) -> Path:
    """The folder made for a command; one that holds something already is refused."""
    folder = output / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(path.name != LOCK for path in folder.iterdir()):
            raise RefusalError(
                "The results need a folder of their own.",
                received=f"{folder}, which holds files already",
                advice="Choose another --name.",
            )
    except OSError as error:
        raise RefusalError(
            "The folder for the results must be writable.",
            received=error,
            advice="Choose another with --output.",
        ) from None
    return folder
