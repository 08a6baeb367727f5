"""Write every form of a report into a folder."""

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from ringside.report.source import RESULTS, digest_of
from ringside_core.specs import Comparison, write_all_whole, write_whole

PAGES = ("report.html", "report.md")
Writer = Callable[[BinaryIO], object]


def write_report(comparison: Comparison, folder: Path) -> Path:
    """Write results.json and then the pages; for the command that made the comparison.

    The records are written first, so that they are kept even if they contradict each other.
    See `write_pages` for the rest.

    Returns:
        The path of report.html.

    Raises:
        RefusalError: the records contradict each other.
    """
    text = comparison.to_json()
    write_whole(folder / RESULTS, text)
    return write_pages(comparison, folder, digest=digest_of(text.encode()))


def write_pages(comparison: Comparison, folder: Path, *, digest: str) -> Path:
    """Write all that is computed from results.json, which is left as it is.

    Everything is rendered before anything is written, and every file is on disk before any file
    gets its name. On a full disk all old files therefore stay. New files stand beside old ones only
    if a file cannot get its name (its folder became read-only in that moment, or the process was
    killed). Each file is then whole, and `ringside verify-report` tells that they differ.

    Args:
        comparison: what results.json says.
        folder: of the comparison; logs are looked for in it, relative to it.
        digest: SHA-256 of results.json.

    Returns:
        The path of report.html.

    Raises:
        RefusalError: the records contradict each other.
    """
    files = files_of(comparison, folder, digest=digest)
    write_all_whole({folder / name: write for name, write in files.items()})
    return folder / PAGES[0]


def files_of(comparison: Comparison, folder: Path, *, digest: str) -> dict[str, Writer]:
    """A writer for each file that is computed from results.json.

    samples.csv has a row for each step, results.csv one for each run. The pages come last. The same
    code writes the same bytes.

    Args:
        comparison: what results.json says.
        folder: of the comparison; logs are looked for in it.
        digest: SHA-256 of results.json.

    Raises:
        RefusalError: the records contradict each other.
    """
    # Templates and plots take a second to import, for which --help does not wait.
    from ringside.report.data import render_csv, samples_into
    from ringside.report.html import render_html
    from ringside.report.markdown import render_markdown
    from ringside.report.plots import plots_of
    from ringside.report.view import view_of

    view = view_of(comparison, folder, digest=digest)
    texts = {
        "results.csv": render_csv(view.summary),
        "report.md": render_markdown(view),
        "report.html": render_html(view, plots_of(view)),
    }
    writers = {name: _writer(text) for name, text in texts.items()}
    return {"samples.csv": lambda stream: samples_into(stream, comparison), **writers}


def _writer(text: str) -> Writer:
    return lambda stream: stream.write(text.encode())
