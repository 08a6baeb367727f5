"""`ringside report`."""

import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from ringside.cli.common import Price, only_one
from ringside.report.source import RESULTS, naming, read_comparison, read_results
from ringside_core.specs import RefusalError, RunSpec, Shared, write_whole


def command(
    folder: Annotated[Path, typer.Argument(help="Folder of a comparison, with results.json.")],
    now: Annotated[
        Path | None,
        typer.Argument(
            metavar="[SECOND]", help="Folder of a later comparison, to compare with the first."
        ),
    ] = None,
    fail_if_slower: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            help="Exit with 1 if an arm became slower by more than that, or lost its certificate.",
        ),
    ] = None,
    price: Price = None,
) -> None:
    """Write the report again from results.json; with two folders, compare them side by side.

    results.json itself stays as it is, but for the price.

    With two folders, it shows for each arm how fast the second is relative to the first, what
    became slower or faster, and which certificates were lost. The pages are written into the second
    folder. The exit code is 0, unless --fail-if-slower is given: then it guards a job.

    Example: ringside report runs/before runs/now --fail-if-slower 5%
    """
    most = None if fail_if_slower is None else _part(fail_if_slower)
    if now is not None:
        if price is not None:
            raise RefusalError(
                "--price is for one comparison.",
                received=f"--price {price:g} and two folders",
                advice="Write the report of one of them again, with the price.",
            )
        _side_by_side(folder, now, most)
        return
    if most is not None:
        raise RefusalError(
            "--fail-if-slower compares two folders.",
            received="one folder",
            advice="Name the later comparison too.",
        )
    report_again(folder, price)


def shared_of(comparison: Path, spec: RunSpec, what: str) -> Shared:
    """What the arms of a comparison share, whose report something joins.

    Args:
        comparison: its folder.
        spec: of the program that is asked for.
        what: joins the report.

    Raises:
        RefusalError: it is of another program: its report would tell of both.
    """
    shared = read_results(comparison).comparison.shared
    theirs, asked = (
        " ".join([one.workload, *(f"-w {k}={v}" for k, v in one.workload_options.items())])
        for one in (shared, spec)
    )
    if theirs != asked:
        raise RefusalError(
            f"A {what} joins the report of a comparison of the same program.",
            received=f"{asked}; {comparison} is of {theirs}",
            advice="Leave out --comparison, or name the program of the comparison.",
        )
    return shared


def report_again(folder: Path, price: float | None = None) -> None:
    """Write the pages of a comparison from what its folder holds; keep a price that is given."""
    if price is not None:
        read_comparison(folder)  # refuses a folder without one, in which there is no lock to hold
        with only_one(folder):  # a comparison that goes on writes it too
            kept = read_comparison(folder)
            priced = kept.replace(asked=kept.asked.replace(price=price))
            write_whole(folder / RESULTS, priced.to_json())
    results = read_results(folder)
    from ringside.report.write import write_pages

    with naming(folder / RESULTS):
        page = write_pages(results.comparison, folder, digest=results.digest)
    print(f"report: {page}")


def _part(text: str) -> float:
    """A percentage as a part.

    Raises:
        RefusalError: it is none between 0 and 100.
    """
    with contextlib.suppress(ValueError):
        if 0 <= (value := float(text.removesuffix("%"))) < 100:
            return value / 100
    raise RefusalError(
        "--fail-if-slower takes a percentage below 100.", received=text, advice="Example: 5%"
    )


def _side_by_side(before: Path, now: Path, most: float | None) -> None:
    from rich.console import Console

    from ringside.report.side_by_side import guard, render_side_by_side_table, write_side_by_side
    from ringside.stats.side_by_side import side_by_side

    two = side_by_side(read_comparison(before), read_comparison(now))
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(render_side_by_side_table(two))
    page = write_side_by_side(two, now, names=(str(before), str(now)))
    console.print(f"side by side: {page}", soft_wrap=True, highlight=False)
    if most is not None:
        fails, sentence = guard(two, most)
        console.print(sentence, soft_wrap=True, highlight=False, markup=False)
        if fails:
            raise typer.Exit(1)
