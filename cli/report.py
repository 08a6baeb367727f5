"""`ringside report`."""

from pathlib import Path
from typing import Annotated

import typer

from specs import Comparison, RefusalError


def command(
    folder: Annotated[Path, typer.Argument(help="Folder of a comparison, with results.json.")],
) -> None:
    """Write report.html, report.md and results.csv again from results.json."""
    source = folder / "results.json"
    try:
        text = source.read_text(encoding="utf-8")
    except OSError as error:
        raise RefusalError(
            "The folder must hold the results.json of a comparison.", received=error
        ) from None
    comparison = Comparison.from_json(text, origin=str(source))
    from report.write import write_report

    print(f"report: {write_report(comparison, folder)}")
