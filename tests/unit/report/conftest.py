"""The folder of a small comparison, with its report."""

import shutil
from pathlib import Path

import pytest

from tests.unit.report.small import write_folder


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole folder; nobody writes into it."""
    return write_folder(tmp_path_factory.mktemp("small"))


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """A copy that may be spoilt."""
    shutil.copytree(written, tmp_path / "small")
    return tmp_path / "small"
