"""Write every form of a report into a folder."""

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from ringside.report.source import RESULTS, digest_of
from ringside_core.specs import Comparison, write_all_whole, write_whole


def write_report(comparison: Comparison, folder: Path) -> Path:
    """Write what was seen, results.json, and then the pages; for who made the comparison.

    The records are kept even where they contradict each other; only then is anything computed from
    them. See `write_pages` for the rest.

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

    report.html, report.md, results.csv (a row for each run), samples.csv (a row for each step) and
    mllog.txt (lines of MLPerf's training log). Everything is rendered before anything is written,
    and everything is on disk before anything gets its name: on a full disk the files of before
    stay, all of them. Only where a file cannot be given its name (its folder was made read-only in
    that moment, the process was killed) do new ones stand beside old ones, each whole, the pages
    last; `ringside verify-report` then tells that they differ.

    Args:
        comparison: what results.json says.
        folder: of the comparison; logs are looked for in it, relative to it.
        digest: SHA-256 of results.json.

    Returns:
        The path of report.html.

    Raises:
        RefusalError: the records contradict each other.
    """
    # Templates and plots take a second to import: whoever only asks for help does not wait for it.
    from ringside.report.html import render_html
    from ringside.report.markdown import render_markdown
    from ringside.report.mllog import render_mllog
    from ringside.report.plots import plots_of
    from ringside.report.rows import render_csv
    from ringside.report.samples import samples_into
    from ringside.report.view import view_of

    view = view_of(comparison, folder, digest=digest)
    texts = {
        "results.csv": render_csv(view.summary),
        "mllog.txt": render_mllog(comparison),
        "report.md": render_markdown(view),
        "report.html": render_html(view, plots_of(view)),
    }
    write_all_whole({
        folder / "samples.csv": lambda stream: samples_into(stream, comparison),
        **{folder / name: _writer(text) for name, text in texts.items()},
    })  # fmt: skip
    return folder / "report.html"


def _writer(text: str) -> Callable[[BinaryIO], object]:
    return lambda stream: stream.write(text.encode())
