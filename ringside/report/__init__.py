"""Records in, pages out. Nothing here imports TensorFlow."""

from ringside.report.write import write_report

__all__ = ["write_report"]
