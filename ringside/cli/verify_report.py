"""`ringside verify-report`."""

from pathlib import Path
from typing import Annotated

import typer

MOST = 40  # differences that are printed


def command(
    folder: Annotated[Path, typer.Argument(help="Folder of a comparison, with its report.")],
) -> None:
    """Compute the whole report again from its raw samples, and say what differs.

    Every file of the report is made again from results.json and compared byte by byte. The record
    of each process, the load of each run and each certificate are compared with results.json. No
    run may be missing, and each carries the hash of the one before it. The main numbers are also
    computed by other code. side_by_side.html and side_by_side.md are not covered. Nothing is
    written. The exit code is 1 if anything differs, and 2 if the report cannot be checked: a file
    is missing or damaged, or other code wrote it.
    """
    from ringside.report.check import check_report  # plots and tables take a second to import

    checked = check_report(folder)
    for what, count in checked.compared:
        print(f"{count:>10,}  {what}")
    for note in checked.notes:
        print(f"note: {note}")
    if not checked.differences:
        print(f"{folder}: the report is what the raw samples say.{_not_covered(folder)}")
        return
    print(f"\n{folder}: {len(checked.differences)} differences; what is there → what should be:\n")
    for one in checked.differences[:MOST]:
        print(f"  {one}")
    if len(checked.differences) > MOST:
        print(f"  … and {len(checked.differences) - MOST} more")
    raise typer.Exit(1)


def _not_covered(folder: Path) -> str:
    """The files beside the report that nobody looked at."""
    names = sorted(file.name for file in folder.glob("side_by_side.*"))
    return f" Not covered: {', '.join(names)}." if names else ""
