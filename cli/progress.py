"""Live progress of a comparison: bars on a terminal, one line for each run elsewhere."""

from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from launch import Progress as TaskProgress
from specs import Arm, Run


class ComparisonProgress:
    """Two bars: runs of the comparison, steps of the running arm."""

    def __init__(self, console: Console, total_runs: int) -> None:
        self._console = console
        self._bars = Progress(
            TextColumn("{task.description:<34}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._runs = self._bars.add_task("runs", total=total_runs)
        self._steps = self._bars.add_task("", total=None)
        self._arm = ""

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bars.stop()

    def start(self, position: int, total: int, arm: Arm) -> None:
        """A run begins."""
        self._arm = arm.label
        self._bars.reset(self._steps, total=None, description=f"{arm.label}: starting")

    def step(self, progress: TaskProgress) -> None:
        """A process of the run got on."""
        if progress.total_steps:
            self._bars.update(
                self._steps,
                total=progress.total_steps,
                completed=progress.step,
                description=f"{self._arm}: {progress.phase}",
            )
        elif progress.phase != "serving":
            self._bars.update(self._steps, description=f"{self._arm}: {progress.phase}")

    def end(self, run: Run) -> None:
        """A run is over: one line, with its outcome."""
        self._bars.advance(self._runs)
        style = "green" if run.outcome.completed else "red"
        self._console.print(
            f"round {run.round + 1}  {run.arm:<34} [{style}]{run.outcome.kind}[/] "
            f"in {run.wall_s:.1f} s",
            highlight=False,
        )
        if not run.outcome.completed:
            self._console.print(f"  {run.outcome}", highlight=False, markup=False)


class Stages:
    """What is being verified, and a line for each arm with what became of it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status = console.status("verifying…")

    def __enter__(self) -> Self:
        self._status.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._status.stop()

    def start(self, label: str) -> None:
        """A set of processes is started; others may run beside it."""
        self._status.update(f"verifying: started {label}…")

    def end(self, label: str, passed: bool) -> None:
        """One line; reasons are told with all certificates."""
        word = "[green]certified[/]" if passed else "[red]not certified[/]"
        self._console.print(f"{label:<34} {word}", highlight=False)
