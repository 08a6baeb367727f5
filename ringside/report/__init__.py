"""Records in, pages out. Nothing here imports TensorFlow."""

from typing import TYPE_CHECKING

from ringside.report.write import write_report

if TYPE_CHECKING:
    from rich.table import Table

    from ringside_core.specs import Comparison

__all__ = ["render_table", "write_report"]


def render_table(comparison: "Comparison") -> "Table":
    """The main table of a comparison and its verdicts, for a terminal; see `table`."""
    # Statistics take a second to import: whoever only asks for help does not wait for it.
    from ringside.report import table

    return table.render_table(comparison)
