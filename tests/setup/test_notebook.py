"""The notebook of examples/ runs to its end, and shows an answer."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "results.ipynb"
LIMIT_S = 900


@pytest.mark.nightly
@pytest.mark.timeout(LIMIT_S + 60)
# Of ipykernel and its sockets, which are not ours.
@pytest.mark.filterwarnings("default")
def test_the_notebook_runs(tmp_path: Path) -> None:
    """A real comparison in a folder of its own; the last cell repeats its headline."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)

    NotebookClient(
        notebook, timeout=LIMIT_S, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()

    shown = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    assert "\x1b" not in "".join(one.text for one in shown[0])
    (headline,) = (one.data["text/plain"] for one in shown[-1])
    assert "Same arithmetic: both certified" in headline
    assert "image/png" in shown[3][0].data
    assert "<table" in shown[1][0].data["text/html"]


def test_the_notebook_is_shown_as_it_ran() -> None:
    """With its outputs: the site prints them."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]

    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert all(cell.outputs for cell in code)
