"""Write every form of a report into a folder."""

from pathlib import Path

from specs import Comparison, write_whole


def write_report(comparison: Comparison, folder: Path) -> Path:
    """Write the pages, and what they are made of as data; each file whole or not at all.

    results.json comes first: the records are kept even where they contradict each other, and only
    then is anything computed from them. Then report.html, report.md, results.csv (a row for each
    run), samples.csv (a row for each step) and mllog.txt (lines of MLPerf's training log).

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
    from report.mllog import render_mllog
    from report.plots import plots_of
    from report.rows import render_csv
    from report.samples import write_samples
    from report.view import view_of

    write_whole(folder / "results.json", comparison.to_json())
    view = view_of(comparison, folder)
    page = render_html(view, plots_of(view))
    markdown = render_markdown(view)
    write_samples(comparison, folder / "samples.csv")
    write_whole(folder / "results.csv", render_csv(view.summary))
    write_whole(folder / "mllog.txt", render_mllog(comparison))
    write_whole(folder / "report.md", markdown)
    write_whole(folder / "report.html", page)
    return folder / "report.html"
