"""`ringside verify-report`."""

from pathlib import Path
from typing import Annotated

import typer


def command(
    folder: Annotated[Path, typer.Argument(help="Folder of a comparison, with its report.")],
) -> None:
    """Render the whole report again from results.json, and say what differs.

    Every file of the report is compared byte by byte. side_by_side.html and side_by_side.md are not
    covered. Nothing is written. The exit code is 1 if a file differs, and 2 if the report cannot be
    checked: a file is missing or damaged, or other code wrote it.

    Example: ringside verify-report runs/mine
    """
    from ringside.report.check import check_report  # plots and tables take a second to import

    checked = check_report(folder)
    different = {name: where for name, where in checked.items() if where}
    if not different:
        print(f"{folder}: {', '.join(checked)} are what results.json says.")
        return
    print(f"{folder} is not what results.json says; what is there → what should be:\n")
    for name, where in different.items():
        print(f"  {name}, first in {where}")
    raise typer.Exit(1)
