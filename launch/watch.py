"""How far each task is: its progress file, and the time since the file last changed."""

import time
from pathlib import Path

from pydantic import NonNegativeInt, PositiveInt

from ringside_core.specs import Noun
from ringside_core.text import is_whole_number

TRAINING = "training"
EVALUATING = "evaluating"
WAITING = "waiting"  # for its turn beside other runs, see launch/turns.py
SERVING = "serving"
IN_SCRIPT = "in-script"  # runs what a user's script does before and after its training
FINISHED = "finished"
STEPPING = (TRAINING, EVALUATING, WAITING, FINISHED)  # they report often, or need not take long
STARTING = ("", "starting", "importing")
SAVES = ("compiling", "saving", TRAINING, EVALUATING, WAITING)  # a training has begun
# To start depends on the machine, not on the workload: on two busy cores it took 35 s.
START_PATIENCE_S = 120.0
# Any other phase is one long call, in which nothing is reported: a download, a compiler, a
# checkpoint on a slow disk.
LONG_CALL_DEADLINES = 10
LONG_CALL_PATIENCE_S = 600.0


class Progress(Noun):
    """Where a task is.

    Attributes:
        phase: starting, importing, loading, building, compiling, training, evaluating, saving,
            waiting, in-script, serving or finished; empty: the task has not reported yet.
        fit: which training of a script the steps are of, from 1.
    """

    task: str
    step: NonNegativeInt = 0
    total_steps: NonNegativeInt = 0
    phase: str = ""
    fit: PositiveInt = 1

    @property
    def steps_left(self) -> int:
        """Steps of this training that are still to be made."""
        return self.total_steps - self.step

    def __str__(self) -> str:
        if not self.phase:
            return f"{self.task} was never heard of"
        if not self.total_steps:
            return f"{self.task} was {self.phase}"
        return f"{self.task} was {self.phase}, step {self.step} of {self.total_steps}"


class Watch:
    """Reads the progress files of all tasks of a run.

    Args:
        run_dir: folder of the run.
        tasks: the tasks that will report.
        queued: count time from the first report of any task.
    """

    def __init__(self, run_dir: Path, tasks: tuple[str, ...], *, queued: bool = False) -> None:
        self._waiting = queued
        now = time.monotonic()
        self._files = {task: run_dir / "progress" / task for task in tasks}
        self._content = dict.fromkeys(tasks, "")
        self._changed = dict.fromkeys(tasks, now)
        self._patience_s = 0.0
        self.latest = {task: Progress(task=task) for task in tasks}

    def look(self) -> list[Progress]:
        """Read every file; returns the tasks that have moved."""
        news = []
        for task, file in self._files.items():
            try:
                content = file.read_text()
            except (OSError, UnicodeDecodeError):
                continue
            if content == self._content[task]:
                continue
            self._content[task] = content
            self._changed[task] = time.monotonic()
            progress = read_progress(task, content)
            if progress is not None and progress != self.latest[task]:
                self.latest[task] = progress
                news.append(progress)
        if self._waiting:
            self.rest()
            self._waiting = not any(self._content.values())
        return news

    def rest(self) -> None:
        """Count the time of every task from now on: it was not its turn."""
        self._changed = dict.fromkeys(self._changed, time.monotonic())

    def standing_still(self, deadline_s: float) -> tuple[float, list[Progress]]:
        """(the limit in seconds, tasks that have not moved for longer, the first to look at first).

        The limit is that of the most patient phase of any task (`patience`), because the others may
        wait for it; after such a phase the time of all is counted from zero. Servers make no steps,
        and finished tasks may wait for others, so neither counts. While any task is in a user's own
        script, none stands still. When all tasks have finished and their processes still run, all
        of them stand still.
        """
        if any(at.phase == IN_SCRIPT for at in self.latest.values()):
            return deadline_s, []
        of_each = {
            task: patience(at.phase, deadline_s)
            for task, at in self.latest.items()
            if at.phase not in (SERVING, FINISHED)
        }
        limit_s = max(of_each.values(), default=deadline_s)
        if limit_s < self._patience_s:
            self.rest()
        self._patience_s = limit_s
        now = time.monotonic()
        if not of_each and now - max(self._changed.values()) <= limit_s:
            return limit_s, []
        still = [task for task in of_each or self.latest if now - self._changed[task] > limit_s]
        still.sort(key=lambda task: (-of_each.get(task, 0.0), self._changed[task]))
        return limit_s, [self.latest[task] for task in still]


def patience(phase: str, deadline_s: float) -> float:
    """Seconds that a task may be silent in a phase, where a step may take `deadline_s`."""
    if phase in STEPPING:
        return deadline_s
    if phase in STARTING:
        return max(deadline_s, START_PATIENCE_S)
    return max(LONG_CALL_DEADLINES * deadline_s, LONG_CALL_PATIENCE_S)


def progress_line(phase: str, step: int = 0, total_steps: int = 0, fit: int = 1) -> bytes:
    """What a task writes into its progress file, see `Progress`; `read_progress` reads it.

    80 bytes for every `step`, to be written by one call: a reader sees the old line or the new one.
    """
    return f"{time.time():.3f} {step} {total_steps} {phase} {fit}".ljust(79).encode() + b"\n"


def read_progress(task: str, content: str) -> Progress | None:
    """Read a `progress_line`; None for an incomplete one."""
    words = content.split()
    if len(words) != 5 or not all(map(is_whole_number, (words[1], words[2], words[4]))):
        return None
    _, step, total, phase, fit = words
    return Progress(
        task=task, step=int(step), total_steps=int(total), phase=phase, fit=max(1, int(fit))
    )
