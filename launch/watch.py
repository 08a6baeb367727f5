"""How far each task is: its progress file, and the time since the file last changed."""

import time
from pathlib import Path

from pydantic import NonNegativeInt

from ringside_core.specs import Noun

TRAINING = "training"
WAITING = "waiting"  # for its turn beside other runs, see launch/turns.py
SERVING = "serving"
IN_SCRIPT = "in-script"  # runs what a user's script does before and after its training
FINISHED = "finished"
# Before the first step a task reports little, and the time depends on the machine: on two busy
# cores it took 35 s to import, build and trace a small model.
START_PATIENCE_S = 120.0


class Progress(Noun):
    """Where a task is.

    Attributes:
        phase: starting, importing, building, training, waiting, serving or finished; empty: the
            task has not reported yet.
    """

    task: str
    step: NonNegativeInt = 0
    total_steps: NonNegativeInt = 0
    phase: str = ""

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

    def standing_still(self, seconds: float) -> tuple[float, list[Progress]]:
        """(the limit in seconds, tasks that have not moved for longer, the longest first).

        Before the first step of any task the limit is START_PATIENCE_S at least. Servers make no
        steps, and finished tasks may wait for others, so neither counts. While any task is in a
        user's own script, none stands still: the others may wait for it. When all tasks have
        finished and their processes still run, all of them stand still.
        """
        unfinished = [t for t, at in self.latest.items() if at.phase not in (SERVING, FINISHED)]
        if any(at.phase == IN_SCRIPT for at in self.latest.values()):
            return seconds, []
        now = time.monotonic()
        if not any(at.phase in (TRAINING, WAITING, FINISHED) for at in self.latest.values()):
            seconds = max(seconds, START_PATIENCE_S)
        if unfinished:
            still = [task for task in unfinished if now - self._changed[task] > seconds]
        elif now - max(self._changed.values()) > seconds:
            still = list(self.latest)
        else:
            still = []
        return seconds, [self.latest[t] for t in sorted(still, key=self._changed.__getitem__)]


def read_progress(task: str, content: str) -> Progress | None:
    """Read `<unix time> <step> <total steps> <phase>`; None for an incomplete line."""
    words = content.split()
    if len(words) != 4 or not (words[1].isdigit() and words[2].isdigit()):
        return None
    return Progress(task=task, step=int(words[1]), total_steps=int(words[2]), phase=words[3])
