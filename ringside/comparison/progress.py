"""Live progress of a comparison: bars on a terminal, one line for each run elsewhere."""

from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from launch import Progress as TaskProgress
from ringside.comparison.budget import time_left_s
from ringside.stats.division import division_lines, width_after
from ringside.stats.rounds import launches_of
from ringside_core.specs import Comparison, Run
from ringside_core.text import duration, percent


class ComparisonProgress:
    """Hears what happens, and shows it: runs of the comparison, steps of the running arm.

    Args:
        console: where they are shown.
        total_runs: None: not known yet.
        done: runs that are there already.
        unit: what a run is counted by: `launch` or `trial`.
    """

    def __init__(
        self,
        console: Console,
        *,
        total_runs: int | None = None,
        done: int = 0,
        unit: str = "launch",
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
        self._said = self._notes = 0

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
        """A process of the running arm made progress; in a live launch, of the arm that starts."""
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
        number = run.round if self._unit == "launch" else run.position + 1
        stage = f"{self._unit} {number}" if number else "screening"
        self._console.print(
            f"{stage}  {run.arm:<34} [{style}]{run.outcome.kind}[/] in {run.wall_s:.1f} s",
            highlight=False,
        )
        if not run.outcome.completed:
            self._console.print(f"  {run.outcome}", highlight=False, markup=False)
        if disturbed:
            self._console.print(f"  [yellow]disturbed[/]: {disturbed}", highlight=False)

    def launch_end(self, comparison: Comparison) -> None:
        """A launch is over: print who is in the final, what failed, and the time that is left."""
        for line in (*division_lines(comparison)[self._said :], *comparison.notes[self._notes :]):
            self._console.print(line, highlight=False, markup=False)
        self._said, self._notes = len(division_lines(comparison)), len(comparison.notes)
        launches = launches_of(comparison)
        said = f"about {duration(time_left_s(comparison, launches))} left"
        if (width := width_after(comparison, len(launches.final))) is not None:
            said += f", interval about ±{percent(width)}"
        self._bars.update(self._runs, description=said)
