"""Who is told how a comparison goes."""

from launch import Progress
from ringside.compare.budget import State
from ringside_core.specs import Comparison, Run


class Observer:
    """Is told what happens. This one ignores it."""

    def start(self, label: str) -> None:
        """A run begins."""

    def step(self, progress: Progress) -> None:
        """A process of the running arm made progress; in a live round, of the arm that starts."""

    def passes(self, done: int, total: int) -> None:
        """All live arms have made so many of their blocks."""

    def end(self, run: Run, disturbed: str) -> None:
        """A run is over; `disturbed` says what disturbed it, and is empty if nothing did."""

    def round_end(self, comparison: Comparison, state: State) -> None:
        """A whole round is made."""
