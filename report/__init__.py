"""Records in, pages out. Nothing here imports TensorFlow."""

from report.table import render_table
from report.write import write_report

__all__ = ["render_table", "write_report"]
