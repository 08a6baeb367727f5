"""Writing a report: the pages together or not at all, and results.json whatever happens."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ringside.report import write_report
from ringside.report.source import digest_of
from ringside.report.write import write_pages
from ringside_core.specs import Comparison
from tests.unit.report.small import small

PAGES = {"report.html", "report.md", "results.csv", "samples.csv"}


@pytest.fixture
def before(tmp_path: Path) -> dict[str, bytes]:
    """A report that is there already, of something else."""
    for name in PAGES:
        (tmp_path / name).write_bytes(b"before")
    return contents(tmp_path)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    "where",
    [
        "ringside.report.html.render_html",
        "ringside.report.data.render_csv",
    ],
)
def test_a_page_that_cannot_be_made_leaves_all_as_they_were(
    where: str, before: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything is rendered first; the measurements are kept."""

    def fails(*_: object) -> str:
        raise ZeroDivisionError

    monkeypatch.setattr(where, fails)
    monkeypatch.setattr("ringside.report.plots.plots_of", lambda view: [])

    with pytest.raises(ZeroDivisionError):
        write_report(small(), tmp_path)

    results = {"results.json": small().to_json().encode()}
    assert contents(tmp_path) == {**before, **results}


def test_a_full_disk_leaves_all_as_they_were(
    before: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest file is cut, and none of the other new files is seen."""

    def full(_: Comparison) -> Iterator[tuple[str, ...]]:
        yield ("run",)
        raise OSError("no space left on device")

    monkeypatch.setattr("ringside.report.data.sample_rows", full)

    with pytest.raises(OSError, match="no space left"):
        write_pages(small(), tmp_path, digest="d" * 64)

    assert contents(tmp_path) == before


def test_the_pages_are_of_the_digest_that_is_given(tmp_path: Path) -> None:
    """They never write results.json."""
    write_pages(small(), tmp_path, digest=digest_of(b"other bytes"))

    assert set(contents(tmp_path)) == PAGES
    for name in ("report.html", "report.md"):
        assert digest_of(b"other bytes") in (tmp_path / name).read_text()
