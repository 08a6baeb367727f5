"""How far each task is: its progress file, and the time since that last changed."""

import time
from pathlib import Path

from pydantic import NonNegativeInt

from ringside_core.specs import Noun

TRAINING = "training"
SERVING = "serving"
FINISHED = "finished"
# Before the first step a task reports little, and how long that takes is up to the machine:
# importing, building and tracing took 35 s of a small model on two busy cores.
START_PATIENCE_S = 120.0


class Progress(Noun):
    """Where a task is.

    Attributes:
        phase: as train.py names it: starting, importing, building, training, serving, finished;
            empty before it was heard of.
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
        tasks: those that will report.
        queued: time counts from the first word of any task.
    """

    def __init__(self, run_dir: Path, tasks: tuple[str, ...], *, queued: bool = False) -> None:
        self._waiting = queued
        now = time.monotonic()
        self._files = {task: run_dir / "progress" / task for task in tasks}
        self._content = dict.fromkeys(tasks, "")
        self._changed = dict.fromkeys(tasks, now)
        self.latest = {task: Progress(task=task) for task in tasks}

    def look(self) -> list[Progress]:
        """Read every file; returns the tasks that are elsewhere than before."""
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
            progress = _parse(task, content)
            if progress is not None and progress != self.latest[task]:
                self.latest[task] = progress
                news.append(progress)
        if self._waiting:
            self._changed = dict.fromkeys(self._changed, time.monotonic())
            self._waiting = not any(self._content.values())
        return news

    def standing_still(self, seconds: float) -> tuple[float, list[Progress]]:
        """Tasks that have not moved for so long, the longest first, and how long that is.

        Before the first step of any task it is START_PATIENCE_S at least.
        A server moves no steps, and one that has finished may wait for the others. When all have
        finished and their processes stay, they stand still too.
        """
        unfinished = [t for t, at in self.latest.items() if at.phase not in (SERVING, FINISHED)]
        now = time.monotonic()
        if not any(at.phase in (TRAINING, FINISHED) for at in self.latest.values()):
            seconds = max(seconds, START_PATIENCE_S)
        if unfinished:
            still = [task for task in unfinished if now - self._changed[task] > seconds]
        elif now - max(self._changed.values()) > seconds:
            still = list(self.latest)
        else:
            still = []
        return seconds, [self.latest[t] for t in sorted(still, key=self._changed.__getitem__)]


def _parse(task: str, content: str) -> Progress | None:
    """Read `<unix time> <step> <total steps> <phase>`; None for a line that is not whole."""
    words = content.split()
    if len(words) != 4 or not (words[1].isdigit() and words[2].isdigit()):
        return None
    return Progress(task=task, step=int(words[1]), total_steps=int(words[2]), phase=words[3])
