"""The folder in which a command leaves its results."""

from datetime import datetime
from pathlib import Path

from specs import RefusalError, RunSpec


def default_name(spec: RunSpec) -> str:
    """A name that says what was trained, and when."""
    workload = spec.workload.rpartition("/")[2].replace(":", "-").replace(".", "-")
    return f"{workload}-{datetime.now():%Y%m%d-%H%M%S}"


def new_folder(output: Path, name: str) -> Path:
    """The folder made for a command; one that holds something already is refused."""
    folder = output / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
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
