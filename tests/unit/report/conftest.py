"""The folder of a small comparison, with its report."""

import functools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringside.report.plots import plots_of
from ringside.report.view import view_of
from tests.unit.report.small import small, write_folder


@pytest.fixture(scope="module")
def same_plots() -> Iterator[None]:
    """All reports have the plots of the first one: they take four fifths of its time."""
    made = functools.cache(lambda: plots_of(view_of(small())))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ringside.report.plots.plots_of", lambda view: made())
        yield


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole folder; no test writes into it."""
    return write_folder(tmp_path_factory.mktemp("small"))


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """A copy that may be spoilt."""
    shutil.copytree(written, tmp_path / "small")
    return tmp_path / "small"
