"""`ringside report`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ringside.report.source import RESULTS, naming, read_comparison, read_results


def command(
    folder: Annotated[Path, typer.Argument(help="Folder of a comparison, with results.json.")],
    now: Annotated[
        Path | None,
        typer.Argument(
            metavar="[SECOND]", help="Folder of a later comparison, to compare with the first."
        ),
    ] = None,
) -> None:
    """Write the report again from results.json; with two folders, compare them side by side.

    results.json itself stays as it is.

    With two folders, it shows for each arm how fast the second is relative to the first, what
    became slower or faster, and which certificates were lost. The pages are written into the second
    folder. A regression is shown but is no failure: the exit code is 0.
    """
    if now is not None:
        _side_by_side(folder, now)
        return
    report_again(folder)


def report_again(folder: Path) -> None:
    """Write the pages of a comparison from what its folder holds."""
    results = read_results(folder)
    from ringside.report.write import write_pages

    with naming(folder / RESULTS):
        page = write_pages(results.comparison, folder, digest=results.digest)
    print(f"report: {page}")


def _side_by_side(before: Path, now: Path) -> None:
    from rich.console import Console

    from ringside.report.side_by_side import render_side_by_side_table, write_side_by_side
    from ringside.stats.side_by_side import side_by_side

    told = side_by_side(read_comparison(before), read_comparison(now))
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(render_side_by_side_table(told))
    page = write_side_by_side(told, now, names=(str(before), str(now)))
    console.print(f"side by side: {page}", soft_wrap=True, highlight=False)
