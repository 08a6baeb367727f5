"""Live progress of a comparison: bars on a terminal, one line for each run elsewhere."""

from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from launch import Progress as TaskProgress
from ringside.compare.budget import State, time_left_s, width_of
from ringside_core.specs import Comparison, Run
from ringside_core.text import duration, plural


class Observer:
    """Is told what happens. This one ignores it."""

    def start(self, label: str) -> None:
        """A run begins."""

    def step(self, progress: TaskProgress) -> None:
        """A process of the running arm made progress; in a live round, of the arm that starts."""

    def passes(self, done: int, total: int) -> None:
        """All live arms have made so many of their blocks."""

    def end(self, run: Run, disturbed: str) -> None:
        """A run is over; `disturbed` says what disturbed it, and is empty if nothing did."""

    def round_end(self, comparison: Comparison, state: State) -> None:
        """A whole round is made."""


class ComparisonProgress(Observer):
    """Two bars: runs of the comparison, steps of the running arm.

    Args:
        console: where they are shown.
        total_runs: None: not known yet.
        done: runs that are there already.
        unit: what a run is counted by: `round` or `trial`.
    """

    def __init__(
        self, console: Console, *, total_runs: int | None, done: int = 0, unit: str = "round"
    ) -> None:
        self._console = console
        self._unit = unit
        self._bars = Progress(
            TextColumn("{task.description:<34}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._runs = self._bars.add_task("runs", total=total_runs, completed=done)
        self._steps = self._bars.add_task("", total=None)
        self._label = ""

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bars.stop()

    def start(self, label: str) -> None:
        """A run begins."""
        self._label = label
        self._bars.reset(self._steps, total=None, description=f"{label}: starting")

    def step(self, progress: TaskProgress) -> None:
        """A process of the run made progress."""
        if progress.total_steps:
            self._bars.update(
                self._steps,
                total=progress.total_steps,
                completed=progress.step,
                description=f"{self._label}: {progress.phase}",
            )
        elif progress.phase != "serving":
            self._bars.update(self._steps, description=f"{self._label}: {progress.phase}")

    def passes(self, done: int, total: int) -> None:
        """All live arms made another block."""
        self._bars.update(
            self._steps, total=total, completed=done, description="blocks of all arms, in turns"
        )

    def end(self, run: Run, disturbed: str) -> None:
        """A run is over: print a line with its outcome, and what disturbed it."""
        self._bars.advance(self._runs)
        style = "green" if run.outcome.completed else "red"
        number = run.round + 1 if self._unit == "round" else run.position + 1
        self._console.print(
            f"{self._unit} {number}  {run.arm:<34} [{style}]{run.outcome.kind}[/] "
            f"in {run.wall_s:.1f} s",
            highlight=False,
        )
        if not run.outcome.completed:
            self._console.print(f"  {run.outcome}", highlight=False, markup=False)
        if disturbed:
            self._console.print(f"  [yellow]disturbed[/]: {disturbed}", highlight=False)

    def round_end(self, comparison: Comparison, state: State) -> None:
        """A whole round is made: print how many, the widest interval and the time left."""
        told = [f"{plural(state.made, 'round')} made"]
        if disturbed := state.made - state.undisturbed:
            again = "" if comparison.ended_because else ", to be repeated at the end"
            told.append(f"{disturbed} of them disturbed{again}")
        if state.widest is not None:
            told.append(f"widest interval {width_of(state.widest)}")
        elif comparison.asked.interval_width is not None:
            told.append("no interval yet")
        if not comparison.ended_because:
            left = duration(time_left_s(comparison.asked, state))
            told.append(f"about {left} left")
            self._bars.update(self._runs, description=f"about {left} left")
        self._console.print("; ".join(told), highlight=False, markup=False)
