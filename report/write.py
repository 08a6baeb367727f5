"""Write every form of a report into a folder."""

from pathlib import Path

from specs import Comparison, write_whole


def write_report(comparison: Comparison, folder: Path) -> Path:
    """Write report.html, report.md, results.json and results.csv, each whole or not at all.

    The records come first: they are kept even where they contradict each other, and only then is
    anything computed from them.

    Args:
        comparison: what was seen.
        folder: of the comparison; logs are looked for in it, relative to it.

    Returns:
        The path of report.html.

    Raises:
        RefusalError: the records contradict each other.
    """
    # Templates and plots take a second to import: whoever only asks for help does not wait for it.
    from report.html import render_html
    from report.markdown import render_markdown
    from report.plots import plots_of
    from report.rows import render_csv
    from report.view import view_of

    write_whole(folder / "results.json", comparison.to_json())
    view = view_of(comparison, folder)
    page = render_html(view, plots_of(view.summary))
    write_whole(folder / "results.csv", render_csv(view.summary))
    write_whole(folder / "report.md", render_markdown(view))
    write_whole(folder / "report.html", page)
    return folder / "report.html"
